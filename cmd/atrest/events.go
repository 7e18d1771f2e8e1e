package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/kube-atrest/atrest/operate/migrate"
)

// now is the moment of a line, with date and zone, as a run may last for days.
func now() string { return time.Now().UTC().Format(time.RFC3339) }

// events reports whether what goes on is told as events, in lines.
func (o output) events() bool { return o == "json" }

// writeEvent prints one line of -o json: an object with the time and the name of the event,
// and the fields of v, which has to be an object too.
func writeEvent(to io.Writer, event string, v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	head := fmt.Sprintf(`{"time":%q,"event":%q`, now(), event)
	if len(line) > len("{}") {
		head += ","
	}
	_, err = to.Write(append([]byte(head), append(line[1:], '\n')...))
	return err
}

// end prints what a run came to, with -o json as its last event.
func (o output) end(to io.Writer, event string, v any, table func(io.Writer) error) error {
	if o.events() {
		return writeEvent(to, event, v)
	}
	return o.write(to, v, table)
}

// The fields of the events that have no type of their own.
type (
	stepEvent struct {
		Step int    `json:"step"`
		Of   int    `json:"of"`
		What string `json:"what"`
		Gate string `json:"gate"`
	}
	problemEvent struct {
		Problem string `json:"problem"`
	}
	canariesEvent struct {
		Apiservers []string `json:"apiservers"`
	}
	rewritingEvent struct {
		Resource string         `json:"resource"`
		Counts   migrate.Counts `json:"counts"`
		// Total is how many objects there are, as far as it is known.
		Total     int64   `json:"total"`
		PerSecond float64 `json:"perSecond"`
		// SecondsLeft is missing if it is not known.
		SecondsLeft *float64 `json:"secondsLeft,omitempty"`
		Waiting     string   `json:"waiting,omitempty"`
	}
	rewrittenEvent struct {
		Resource string         `json:"resource"`
		Counts   migrate.Counts `json:"counts"`
	}
	migrationEvent struct {
		Resource  string  `json:"resource"`
		Migration string  `json:"migration"`
		Running   bool    `json:"running"`
		Seconds   float64 `json:"seconds"`
	}
)

func rewritingOf(resource string, p migrate.Progress) rewritingEvent {
	e := rewritingEvent{Resource: resource, Counts: p.Counts, Total: max(p.Total, p.Counts.Seen), PerSecond: p.PerSecond, Waiting: p.Waiting}
	if left := p.Left.Seconds(); p.Left >= 0 && p.Waiting == "" {
		e.SecondsLeft = &left
	}
	return e
}
