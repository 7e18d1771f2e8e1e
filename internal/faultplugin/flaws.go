package faultplugin

// A Flaw is one thing that a [KMS] does wrong.
type Flaw string

// The flaws, and beside each where it was seen, if it was.
const (
	OldVersion       Flaw = "Status answers with version v1"
	OnlyV1           Flaw = "it serves no v2"
	NoKeyID          Flaw = "the key_id is empty"
	BrokenKeyID      Flaw = "the key_id is not UTF-8"
	LongKeyID        Flaw = "the key_id has 1025 bytes"
	ShowsAddress     Flaw = "the key_id holds the address of the KMS, in base64" // vault-kube-kms
	FlappingKeyID    Flaw = "every 20th Status in a row names another key_id"
	AltersNewlines   Flaw = "newlines at the end of a plaintext are lost"
	LeaksPlaintext   Flaw = "an annotation holds the plaintext in base64"
	LongCiphertext   Flaw = "a ciphertext has more than 1024 bytes"
	ReusesNonce      Flaw = "all is encrypted with the same stream of key bits"
	CountsNonces     Flaw = "the nonce is the number of the call since the start" //
	BadAnnotation    Flaw = "the name of an annotation is no domain name"
	LongAnnotations  Flaw = "the annotations have more than 32 KiB"
	OtherLabel       Flaw = "Encrypt answers under another key_id than Status"
	LabelsFromBefore Flaw = "Encrypt labels with the key_id that Status named last"                         // kleidi
	LabelsFromAfter  Flaw = "Encrypt asks for the key_id in a second call"                                  // vault-kubernetes-kms
	StatusFromBefore Flaw = "after a rotation the first calls of Status name the old"                       // a lagging standby
	StaticKeyID      Flaw = "the key_id never changes"                                                      // aws-encryption-provider
	KeyIDOfAllOfIt   Flaw = "the key_id changes with the key alone, and not with its versions"              // the ARN of AWS
	ForgetsOldKeys   Flaw = "a rotation makes what was encrypted before unreadable"                         // min_decryption_version
	ReusesKeyID      Flaw = "the key_id is the version of the key"                                          // vault-kubernetes-kms
	NewKeyIDAtStart  Flaw = "each start makes a new key_id"                                                 //
	ForgetsAtStart   Flaw = "a start loads the newest key alone"                                            //
	AnyKeyID         Flaw = "Decrypt does not look at the key_id"                                           //
	TakesPlaintext   Flaw = "Decrypt hands back what has no header of its own"                              //
	IgnoresTail      Flaw = "Decrypt does not look at the last byte"                                        //
	EmptyPanics      Flaw = "an empty ciphertext ends the process"                                          // aws-encryption-provider
	EmptyPanicCaught Flaw = "an empty ciphertext makes it panic, which is caught"                           //
	LongPanics       Flaw = "a long ciphertext ends the process"                                            //
	MixesCallers     Flaw = "more than 16 calls of Encrypt at once fail"                                    //
	LeaksSlots       Flaw = "a cancelled call keeps its place"                                              //
	SlowOnce         Flaw = "one Decrypt takes longer than an apiserver waits"                              //
	SilentTrouble    Flaw = "Status says ok whatever there is"                                              // the mock of k8s.io/kms
	TroubleAsText    Flaw = "Status tells of trouble by the text of healthz alone"                          // kubernetes#138950
	UnknownTrouble   Flaw = "the errors of trouble have no code"                                            //
	OtherTrouble     Flaw = "a KMS that is away is told of as a key that is not there"                      //
	Hangs            Flaw = "while there is trouble calls keep their places when their deadline has passed" //
	TellsOnce        Flaw = "Status tells of trouble once, and says ok then"                                //
	TextAfterError   Flaw = "Status tells of trouble once by an error, and then by the text of healthz"     // kubernetes#138950
	WaitsInTrouble   Flaw = "while there is trouble each call waits for its deadline"                       //
	EndsInTrouble    Flaw = "while there is trouble each call of Decrypt ends the process"                  //
	AllIsAway        Flaw = "lost credentials and a disabled key are told of as a KMS that is away"
	GoneInTrouble    Flaw = "while there is trouble Decrypt says that a ciphertext is damaged"
	OtherInTrouble   Flaw = "while there is trouble Encrypt goes on with a key that is lost then"
	ForgetsInTrouble Flaw = "after trouble the newest key alone is loaded"
	GoesBack         Flaw = "for some calls after a rotation has shown the old key is in use again" // a lagging standby
	GoesBackForGood  Flaw = "long after a rotation has shown the old key is in use again"           // a restored backup
	OldAfterTrouble  Flaw = "after trouble Encrypt goes on with the key before, and says so"
	OldAtStart       Flaw = "after a start Encrypt goes on with the key before, and says so"
	LateInTrouble    Flaw = "while there is trouble each call takes longer than an apiserver waits"
	AnyLikeKeyID     Flaw = "Decrypt looks at the length of the key_id alone"
	LooseAnnotation  Flaw = "an annotation that takes part in what is opened is not authenticated"
	Limited          Flaw = "a second Decrypt without an Encrypt is one too many"
	StaysBroken      Flaw = "trouble ends with a restart alone"                                     // vault-kube-kms
	OpenToAll        Flaw = "everybody may connect"                                                 //
	OpenFolder       Flaw = "everybody may put another socket into its folder"                      //
	OthersSocket     Flaw = "the socket is another user's"                                          //
	OthersFolder     Flaw = "the folder of the socket is another user's"                            //
	SecondIsLate     Flaw = "a second one takes long to start"                                      //
	AbstractSocket   Flaw = "the socket is an abstract one"                                         //
	OpenAbove        Flaw = "everybody may put another folder in the place of the socket's"         //
	TakesTheSocket   Flaw = "a second one takes the socket of the first"                            //
	SecondEndsEarly  Flaw = "a second one ends before it looks at the socket"                       //
	KeepsStaleSocket Flaw = "a socket file that is there keeps it from starting"                    // k8s.io/kms/pkg/service
	CutsCalls        Flaw = "SIGTERM ends the calls that are under way"                             //
	LogsPlaintext    Flaw = "the log holds plaintexts"                                              //
	KeyInError       Flaw = "an error of Encrypt holds the plaintext"                               //
	FirstLabels      Flaw = "the first calls of Encrypt answer under another key_id"                //
	LeaksDecrypts    Flaw = "a cancelled call of Decrypt keeps its place"                           //
	HangsOnce        Flaw = "one Decrypt is never answered"                                         //
	HidesThePile     Flaw = "while there is trouble Decrypts keep their places, and Status is slow" //
	BrokenAnnotation Flaw = "the name of an annotation is not UTF-8"                                //
	KeyInDetails     Flaw = "the details of an error of Encrypt hold the plaintext"                 //
	GroupsFolder     Flaw = "another group may put another socket into its folder"                  //
	EmptyInTrouble   Flaw = "while there is trouble Status answers nothing, and no error"           //
	// IsALine is no flaw: a ciphertext is text, and ends with a newline.
	IsALine Flaw = "a ciphertext is a line"
	// BindsLabel is no flaw: the key_id is authenticated, and nothing in a ciphertext
	// says which key made it.
	BindsLabel Flaw = "the key_id is bound"
	// LateDecrypt is none either: after trouble Decrypt is well some calls later than Status.
	LateDecrypt Flaw = "Decrypt is well a while later"
	// LateMachine is none either: after trouble one of the two machines of the KMS, which are asked by
	// turns, is well some calls later than the other.
	LateMachine Flaw = "one machine is well a while later"
	// FarAway is none either: the KMS takes a while for each call, and Status does not ask it.
	FarAway Flaw = "the KMS is far away, and Status is answered from memory"
	// HidesKey is none that a check fails: nothing says which key made a ciphertext, as Decrypt
	// tries them all, whatever the key_id.
	HidesKey Flaw = "Decrypt tries all keys"
	// TimeInFront and CounterInFront are none either: a ciphertext begins with the time
	// in seconds, as Fernet's do, or with the number of the call.
	TimeInFront    Flaw = "the time is in front"
	CounterInFront Flaw = "a counter is in front"
)
