package bundle

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

const (
	maxArguments = 64
	maxArgument  = 4096
)

// dollar is what stands for something else in an argument: $$ or $(NAME).
var dollar = regexp.MustCompile(`\$(\$|\([^)]*\)?)?`)

// The names that an argument may hold, besides those of parts.
const (
	endpointVariable = "$(endpoint)"
	socketVariable   = "$(socket)"
)

func (c *Command) check(found *problems, program Program) {
	if program.Path == "" && program.Image == "" {
		found.addf("command: program is not given: give its path and digest, or its image")
	}
	need(found, "command.kek", c.KEK)
	if len(c.Arguments) > maxArguments {
		found.addf("command.arguments are %d, and at most %d are allowed", len(c.Arguments), maxArguments)
		return
	}
	listens := false
	for i, argument := range c.Arguments {
		field := fmt.Sprintf("command.arguments[%d]", i)
		found.add(checkText(field, argument, maxArgument))
		for _, name := range dollar.FindAllString(argument, -1) {
			listens = listens || name == endpointVariable || name == socketVariable
			if _, ok := partOf(name); !ok && name != "$$" && name != endpointVariable && name != socketVariable {
				found.addf("%s has a $ that means nothing: write $(endpoint), $(socket), $(secret/NAME/KEY), $(configmap/NAME/KEY), or $$ for a dollar", field)
			}
		}
	}
	if !listens {
		found.addf("command.arguments name no socket: give the plugin $(endpoint), its URL, or $(socket), its path")
	}
}

// partOf is the part that $(secret/NAME/KEY) or $(configmap/NAME/KEY) stands for.
func partOf(variable string) (Part, bool) {
	inner, ok := strings.CutPrefix(variable, "$(")
	inner, closed := strings.CutSuffix(inner, ")")
	fields := strings.Split(inner, "/")
	if !ok || !closed || len(fields) != 3 || fields[0] != string(Secret) && fields[0] != string(ConfigMap) {
		return Part{}, false
	}
	return Part{Source: Source(fields[0]), Name: fields[1], Key: fields[2]}, true
}

// parts are those that the arguments name.
func (c *Command) parts() []Part {
	var all []Part
	for _, argument := range c.Arguments {
		for _, name := range dollar.FindAllString(argument, -1) {
			if part, ok := partOf(name); ok && !slices.Contains(all, part) {
				all = append(all, part)
			}
		}
	}
	return all
}

// arguments are those of a process at a place.
func (c *Command) arguments(id KeyID, at Place) []string {
	all := make([]string, 0, len(c.Arguments))
	for _, argument := range c.Arguments {
		all = append(all, dollar.ReplaceAllStringFunc(argument, func(name string) string {
			switch name {
			case "$$":
				return "$"
			case endpointVariable:
				return at.endpoint()
			case socketVariable:
				return at.Socket
			}
			part, _ := partOf(name) // which were checked
			return at.file(part, id)
		}))
	}
	return all
}
