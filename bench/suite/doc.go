// Package suite has what is measured: the cases, each a set of contestants that
// a [measure.Plan] interleaves or that run as Go benchmarks. Sides come from
// package side; a case sets them up, checks that each reads back what it wrote,
// and says what is one operation.
//
// Nothing here compares or judges.
package suite
