package edit

import (
	"bytes"
	"encoding/json"

	"go.yaml.in/yaml/v3"
)

// field is the value of a field of a mapping, or nil.
func field(n *yaml.Node, name string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
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

// text is a string, which the encoder puts in quotes where it must.
func text(s string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(s)
	return n
}

func texts(all []string) []*yaml.Node {
	nodes := make([]*yaml.Node, 0, len(all))
	for _, s := range all {
		nodes = append(nodes, text(s))
	}
	return nodes
}

// encodeJSON writes a document that was JSON as JSON again, its fields in their
// order.
func encodeJSON(root *yaml.Node) ([]byte, error) {
	compact, err := appendJSON(nil, root.Content[0])
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, compact, "", "  "); err != nil {
		return nil, err
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

func appendJSON(b []byte, n *yaml.Node) ([]byte, error) {
	switch {
	case n.Kind != yaml.ScalarNode:
		return appendList(b, n)
	case n.Tag != "!!str":
		return append(b, n.Value...), nil // a number, true, false or null, as it stood
	}
	value, err := json.Marshal(n.Value)
	return append(b, value...), err
}

func appendList(b []byte, n *yaml.Node) ([]byte, error) {
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
		var err error
		if b, err = appendJSON(b, child); err != nil {
			return nil, err
		}
	}
	return append(b, end), nil
}
