package main

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/kube-atrest/atrest/kmsplugin/conformance"
)

// printList prints the checks that there are.
func (c *conformCommand) printList() error {
	checks := conformance.Checks()
	if c.output == "json" {
		return printIndented(c.out, listedAll(checks))
	}
	rows := [][]string{{"CHECK", "NEEDS", "WHAT HAS TO HOLD"}}
	for _, check := range checks {
		rows = append(rows, []string{check.ID, orDash(flagsFor(check.Needs)), check.Says})
	}
	return printTable(c.out, rows)
}

func printIndented(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// listed is a check as JSON has it: with the flags that it needs, as the command has no functions.
type listed struct {
	conformance.Check
	Needs []string `json:"needs,omitempty"`
}

func listedAll(checks []conformance.Check) (all []listed) {
	for _, check := range checks {
		all = append(all, listed{check, flagsOfNeeds(check.Needs)})
	}
	return all
}

// concluded is a result as JSON has it, with flags too.
type concluded struct {
	conformance.Result
	Needs   []string `json:"needs,omitempty"`
	Missing []string `json:"missing,omitempty"`
}

func printConformanceJSON(w io.Writer, r *conformance.Report) error {
	results := make([]concluded, 0, len(r.Results))
	for _, result := range r.Results {
		results = append(results, concluded{result, flagsOfNeeds(result.Needs), flagsOfNeeds(result.Missing)})
	}
	return printIndented(w, struct {
		Endpoint string      `json:"endpoint"`
		Results  []concluded `json:"results"`
	}{r.Endpoint, results})
}

func printConformance(w io.Writer, r *conformance.Report) error {
	rows := [][]string{{"CHECK", "RESULT", "TOOK"}}
	for _, result := range r.Results {
		outcome := string(result.Outcome)
		if result.Outcome == conformance.NotTried {
			outcome += ": " + result.Why
		}
		rows = append(rows, []string{result.ID, outcome, took(result.Took)})
	}
	if err := printTable(w, rows); err != nil {
		return err
	}
	for _, result := range r.Results {
		if result.Outcome == conformance.Failed || result.Outcome == conformance.Unknown {
			fmt.Fprintf(w, "\n%s\n", printableLines(result.String()))
		}
	}
	fmt.Fprintf(w, "\n%s: %d passed, %d failed, %d unknown, %d not tried\n", printable(r.Endpoint), r.Count(conformance.Passed),
		r.Count(conformance.Failed), r.Count(conformance.Unknown), r.Count(conformance.NotTried))
	return nil
}

// printableLines is printable for a text of some lines.
func printableLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = printable(line)
	}
	return strings.Join(lines, "\n")
}

// A junitSuite is a report as CI systems read it.
type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Time     string      `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string     `xml:"classname,attr"`
	Name    string     `xml:"name,attr"`
	Time    string     `xml:"time,attr"`
	Failure *junitText `xml:"failure"`
	Error   *junitText `xml:"error"`
	Skipped *junitText `xml:"skipped"`
}

type junitText struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

func printJUnit(w io.Writer, r *conformance.Report) error {
	suite := junitSuite{
		Name: "atrest conform " + r.Endpoint, Tests: len(r.Results), Failures: r.Count(conformance.Failed),
		Errors: r.Count(conformance.Unknown), Skipped: r.Count(conformance.NotTried),
	}
	var total time.Duration
	for _, result := range r.Results {
		total += result.Took
		suite.Cases = append(suite.Cases, junitCaseOf(result))
	}
	suite.Time = seconds(total)
	text, err := xml.MarshalIndent(suite, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s%s\n", xml.Header, text)
	return err
}

func junitCaseOf(r conformance.Result) junitCase {
	c := junitCase{Class: "kms-v2", Name: r.ID, Time: seconds(r.Took)}
	text := &junitText{Message: printableLines(r.Why), Text: printableLines(r.String())}
	switch r.Outcome {
	case conformance.Failed:
		c.Failure = text
	case conformance.Unknown:
		c.Error = text
	case conformance.NotTried:
		c.Skipped = &junitText{Message: r.Why}
	case conformance.Passed:
	}
	return c
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }
