package tpm

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/go-tpm/tpm2"
)

// maxPCRs is how many PCRs a TPM tells in one answer.
const maxPCRs = 8

// pcrs are those that a KEK is bound to: none, or some of one bank. It is read-only.
type pcrs struct {
	bank    string
	numbers []uint
}

var banks = map[string]tpm2.TPMAlgID{"sha256": tpm2.TPMAlgSHA256, "sha384": tpm2.TPMAlgSHA384, "sha512": tpm2.TPMAlgSHA512}

// parsePCRs reads what [pcrs.String] writes, in any order.
func parsePCRs(text string) (pcrs, error) {
	if text == "" {
		return pcrs{}, nil
	}
	bank, list, found := strings.Cut(text, ":")
	if _, known := banks[bank]; !found || !known {
		return pcrs{}, fmt.Errorf("PCRs %.64q: give a bank and numbers, as in sha256:7,11; banks are sha256, sha384 and sha512", text)
	}
	p := pcrs{bank: bank}
	for number := range strings.SplitSeq(list, ",") {
		n, err := strconv.ParseUint(number, 10, 8)
		if err != nil || n > 23 {
			return pcrs{}, fmt.Errorf("PCRs %.64q: %.16q is no number from 0 to 23", text, number)
		}
		p.numbers = append(p.numbers, uint(n))
	}
	slices.Sort(p.numbers)
	p.numbers = slices.Compact(p.numbers)
	if len(p.numbers) > maxPCRs {
		return pcrs{}, fmt.Errorf("PCRs %.64q: at most %d", text, maxPCRs)
	}
	return p, nil
}

// check refuses those that anybody sets back to their first value, and so to any that they ever had:
// the TCG has 16 for trying things out, and 23 for applications.
func (p pcrs) check() error {
	resettable := slices.DeleteFunc(slices.Clone(p.numbers), func(n uint) bool { return n != 16 && n != 23 })
	if len(resettable) == 0 {
		return nil
	}
	return fmt.Errorf("%w: PCRs %s: whoever may use the TPM resets %v at any time, so that a key bound to it is bound to nothing: take others (--pcrs), as sha256:7", ErrConfig, p, resettable)
}

func (p pcrs) none() bool { return len(p.numbers) == 0 }

func (p pcrs) String() string {
	if p.none() {
		return ""
	}
	var numbers []string
	for _, n := range p.numbers {
		numbers = append(numbers, strconv.FormatUint(uint64(n), 10))
	}
	return p.bank + ":" + strings.Join(numbers, ",")
}

func (p pcrs) selection() tpm2.TPMLPCRSelection {
	return tpm2.TPMLPCRSelection{PCRSelections: []tpm2.TPMSPCRSelection{{Hash: banks[p.bank], PCRSelect: tpm2.PCClientCompatible.PCRs(p.numbers...)}}}
}

// policy is what a KEK is sealed with that opens while the PCRs have these values; nil if it is
// bound to none.
func (p pcrs) policy(values [][]byte) ([]byte, error) {
	if p.none() {
		return nil, nil
	}
	calculator, err := tpm2.NewPolicyCalculator(tpm2.TPMAlgSHA256)
	if err != nil {
		return nil, err
	}
	all := sha256.Sum256(slices.Concat(values...))
	command := tpm2.PolicyPCR{PcrDigest: tpm2.TPM2BDigest{Buffer: all[:]}, Pcrs: p.selection()}
	if err := command.Update(calculator); err != nil {
		return nil, err
	}
	return calculator.Hash().Digest, nil
}

// differ are the numbers of those that are not what they were.
func (p pcrs) differ(were, are [][]byte) []uint {
	var numbers []uint
	for i, n := range p.numbers {
		if i >= len(were) || i >= len(are) || !slices.Equal(were[i], are[i]) {
			numbers = append(numbers, n)
		}
	}
	return numbers
}
