package traffic

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// Password is what no value in etcd may have in it.
const Password = "correct-horse-battery-staple"

// value is what a Secret holds after so many writes.
func value(name string, number int) []byte {
	return fmt.Appendf(nil, "%d %s %s %s", number, name, Password, strings.Repeat("0123456789", 80))
}

// numberOf is the number of the value that a Secret has, as far as one can be read off it.
func numberOf(s *corev1.Secret) int {
	head, _, _ := bytes.Cut(s.Data["value"], []byte(" "))
	number, err := strconv.Atoi(string(head))
	if err != nil {
		return -1
	}
	return number
}

// book is what is known of every Secret: the numbers of the write that was acknowledged
// last, and of the one that was tried last.
type book struct {
	mu      sync.Mutex
	acked   map[string]int
	tried   map[string]int
	names   []string
	version uint64 // the largest resourceVersion that was acknowledged
}

func newBook() *book { return &book{acked: map[string]int{}, tried: map[string]int{}} }

// try is the number of the next write of a Secret, which is going to be tried.
func (b *book) try(name string) (number int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tried[name]++
	return b.tried[name]
}

// acknowledge notes that a write was done, and that the Secret has this resourceVersion
// since.
func (b *book) acknowledge(name string, number int, version string) error {
	v, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if number == 1 {
		b.names = append(b.names, name)
	}
	b.acked[name], b.version = number, max(b.version, v)
	return nil
}

// newest is a resourceVersion that is not older than anything that was acknowledged.
func (b *book) newest() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strconv.FormatUint(b.version, 10)
}

// any is a Secret that is there.
func (b *book) any(random *rand.Rand) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.names[random.IntN(len(b.names))]
}

// moment is when a read began, and what had been acknowledged by then.
type moment struct {
	book  *book
	acked map[string]int
}

func (b *book) open() moment {
	b.mu.Lock()
	defer b.mu.Unlock()
	return moment{b, maps.Clone(b.acked)}
}

// errWrong is that an apiserver answered, and not with what was written.
var errWrong = errors.New("not what was written")

func isWrong(err error) bool { return errors.Is(err, errWrong) }

// check holds a Secret that was read to the book: it has a value that it was given, and
// none older than when the read began.
func (m moment) check(s *corev1.Secret) error {
	m.book.mu.Lock()
	tried := m.book.tried[s.Name]
	m.book.mu.Unlock()
	got, number := s.Data["value"], numberOf(s)
	if !bytes.Equal(got, value(s.Name, number)) {
		return fmt.Errorf("%w: %s holds %d bytes that begin with %.60q", errWrong, s.Name, len(got), got)
	}
	if number < m.acked[s.Name] || number > tried {
		return fmt.Errorf("%w: %s holds value %d, and %d was acknowledged before, %d tried", errWrong, s.Name, number, m.acked[s.Name], tried)
	}
	return nil
}

// checkAll holds a list to the book. Whatever was acknowledged before has to be in it.
func (m moment) checkAll(list []corev1.Secret) error {
	there := map[string]bool{}
	for i := range list {
		there[list[i].Name] = true
		if err := m.check(&list[i]); err != nil {
			return err
		}
	}
	for name := range m.acked {
		if !there[name] {
			return fmt.Errorf("%w: %s is not in the list of %d", errWrong, name, len(list))
		}
	}
	return nil
}
