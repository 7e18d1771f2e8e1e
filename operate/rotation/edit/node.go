package edit

import (
	"encoding/json"
	"strings"

	"go.yaml.in/yaml/v3"
)

// field is the value of a field of a mapping, or nil. An alias has none.
func field(n *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	return nil
}

// mapping has the nodes as keys and values in turn.
func mapping(content ...*yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Content: content}
}

// text is a string, which the encoder puts in quotes where YAML 1.2 wants them. An
// apiserver reads YAML 1.1, to which some more words are no strings.
func text(s string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(s)
	switch strings.ToLower(s) {
	case "y", "n", "yes", "no", "on", "off":
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

func texts(all []string) []*yaml.Node {
	nodes := make([]*yaml.Node, 0, len(all))
	for _, s := range all {
		nodes = append(nodes, text(s))
	}
	return nodes
}

// appendJSON appends a node of a document that was JSON, its fields in their order.
func appendJSON(b []byte, n *yaml.Node) []byte {
	switch {
	case n.Kind != yaml.ScalarNode:
		return appendList(b, n)
	case n.Tag != "!!str":
		return append(b, n.Value...) // a number, true, false or null, as it stood
	}
	value, _ := json.Marshal(n.Value) // which takes any string
	return append(b, value...)
}

func appendList(b []byte, n *yaml.Node) []byte {
	open, end := byte('['), byte(']')
	if n.Kind == yaml.MappingNode {
		open, end = '{', '}'
	}
	b = append(b, open)
	for i, child := range n.Content {
		switch {
		case i == 0:
		case n.Kind == yaml.MappingNode && i%2 == 1:
			b = append(b, ':')
		default:
			b = append(b, ',')
		}
		b = appendJSON(b, child)
	}
	return append(b, end)
}
