package node

import (
	"net"

	"github.com/kube-atrest/atrest/operate/bundle"
)

// Spec is one instance of a plugin: what it is started with. It holds no credential.
type Spec struct {
	// Instance names it, at random: no other one ever has that name.
	Instance string `json:"instance"`
	// KeyID is what it is for.
	KeyID string `json:"keyID"`
	// Settings are those of the [Key].
	Settings string `json:"settings"`
	// Folder is its own, of mode 0700: Files are in it, and what a [Runner] keeps.
	Folder string `json:"folder"`
	// Socket is the path that it is to listen on, which no other instance ever has.
	Socket string `json:"socket"`
	// Program is what is run, with Arguments.
	Program   bundle.Program `json:"program"`
	Arguments []string       `json:"arguments"`
	// Needs are what it has of the node beside all that.
	Needs bundle.Needs `json:"needs,omitzero"`
}

// Files is the path of the folder with its credentials and its CA.
func (s Spec) Files() string { return s.Folder + "/" + filesLink }

// Runner has instances run. It outlives the node: what runs when the node ends runs on, and
// is found by the next one. A node calls it from one goroutine, but for Proves.
type Runner interface {
	// Start has an instance run. It waits for nothing that the instance does.
	Start(Spec) error
	// Runs reports whether an instance runs, or will. An error says that this is not known.
	Runs(Spec) (bool, error)
	// Proves is nil if it is this instance that listens at the other end of a connection,
	// and nobody else.
	Proves(Spec, *net.UnixConn) error
	// Stop tells an instance to end, with patience or, if hard is true, at once. It is an error
	// if it is not proven that it is this instance that would end.
	Stop(s Spec, hard bool) error
	// Clear removes what the runner has of an instance that runs no longer, outside its Folder.
	Clear(Spec) error
}
