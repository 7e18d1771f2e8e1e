package node

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
)

// taken is what is said of a port, or a socket, that somebody else has: EADDRINUSE in words.
var taken = regexp.MustCompile(`(?i)address already in use`)

// number may be that of a port.
var number = regexp.MustCompile(`\b[0-9]{1,5}\b`)

// clash names the plugin of this node that has the port which another one wanted, by what that one said
// last and by what the kernel tells of who listens. It is empty if no port was taken.
func (n *Node) clash(one *own, said string) string {
	if !taken.MatchString(said) {
		return ""
	}
	of, is := n.o.Runner.(interface{ Ports(Spec) ([]int, error) })
	if !is {
		return ": who has the port is not known"
	}
	for _, text := range number.FindAllString(said, -1) {
		port, _ := strconv.Atoi(text)
		for _, other := range n.own {
			if other.Spec.Instance == one.Spec.Instance {
				continue
			}
			if ports, err := of.Ports(other.Spec); err == nil && slices.Contains(ports, port) {
				return fmt.Sprintf(": port %d is that of the plugin of keyID %s, %s, which runs beside it: give each a port of its own", port, other.Spec.KeyID, other.Spec.Instance)
			}
		}
	}
	return ": no other plugin of this node is seen to have the port"
}
