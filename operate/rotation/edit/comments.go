package edit

import (
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// comment is what YAML takes for one, and what looks like one in a string.
var comment = regexp.MustCompile(`(?m)(?:^|\s)#.*$`)

// lostComment is the line of a comment that is neither in the new file nor gone
// with a provider, or 0. What looks like a comment in the old file counts as one,
// so that it errs towards a loss.
func (d *document) lostComment(old, new []byte) int {
	if d.json {
		return 0
	}
	kept := map[string]int{}
	for _, line := range slices.Concat(commentsOf(string(new)), d.gone) {
		kept[line]++
	}
	for i, line := range strings.Split(string(old), "\n") {
		for _, c := range commentsOf(line) {
			if kept[c]--; kept[c] < 0 {
				return i + 1
			}
		}
	}
	return 0
}

func commentsOf(text string) []string {
	all := comment.FindAllString(text, -1)
	for i, c := range all {
		all[i] = strings.TrimSpace(c)
	}
	return all
}

// withoutComments gives what stands below provider i to its neighbour, as it may
// be about that one, and lists what remains of its comments.
func withoutComments(providers []*yaml.Node, i int) []string {
	below := strings.Join(takeBelow(providers[i]), "\n\n")
	switch {
	case below == "":
	case i+1 < len(providers):
		next := providers[i+1]
		next.HeadComment = strings.Trim(below+"\n\n"+next.HeadComment, "\n")
	default:
		last := providers[i-1]
		last.FootComment = strings.Trim(last.FootComment+"\n\n"+below, "\n")
	}
	return commentsIn(providers[i])
}

// takeBelow takes the comments at the very end of a node out of it.
func takeBelow(n *yaml.Node) (all []string) {
	for _, child := range n.Content[max(0, len(n.Content)-2):] { // the last key and value, or two items
		all = append(all, takeBelow(child)...)
	}
	if n.FootComment != "" {
		all = append(all, n.FootComment)
	}
	n.FootComment = ""
	return all
}

// commentsIn are all comments of a node and of what is in it.
func commentsIn(n *yaml.Node) []string {
	all := commentsOf(strings.Join([]string{n.HeadComment, n.LineComment, n.FootComment}, "\n"))
	for _, child := range n.Content {
		all = append(all, commentsIn(child)...)
	}
	return all
}
