// Package measure times contestants against each other, and keeps what comes of it. It is
// for the commands bench/report and apiserver/measure, and nothing else imports it.
//
// All contestants are measured once before any is measured again: A B C, B C A. A machine
// that slows down for a while then slows all of them down, and the ratio of two figures of
// one round stays what it is. Figures of different rounds are never compared. A [Book] has
// the figures of every round; a [Table] what is worth keeping: medians, how far the rounds
// lie apart, and the same of the ratios within a round.
package measure
