// Package measure times contestants against each other. In go contestants, out
// come figures, one for each contestant and round.
//
// All contestants are measured once before any is measured again: A B C, B C A.
// A machine that slows down for a while then slows all of them down, and the
// ratio of two figures of one round stays what it is. Figures of different
// rounds are never compared. Nothing here knows what is measured.
package measure
