package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/internal/measure"
	"github.com/kube-atrest/atrest/operate/migrate"
)

// The sides of what an operator does.
const (
	creates   = "creates"
	migrates  = "migrate"
	counts    = "audit"
	decrypted = "audit --decrypt"
)

const peakBytes = "peak-B" // of memory of the command

// workers is how many requests are under way at once.
var workers = []int{4, 8, 16, 32, 64}

// stockWorkers is how many there are of those for Kubernetes' own server.
const stockWorkers = 32

// migrateName is that of the server with this library, or of Kubernetes' own.
func migrateName(program string, atOnce int) measure.Name {
	name := "Migrate"
	if program == harness.StockServer {
		name = "MigrateStock"
	}
	return measure.Name{Case: name, Params: fmt.Sprintf("workers=%d", atOnce)}
}

func auditName(objects int) measure.Name {
	return measure.Name{Case: "Audit", Params: fmt.Sprintf("objects=%d", objects)}
}

// migration has Secrets created, and as many that lie in etcd in plaintext stored again, on
// one server with the same number of requests under way, one after the other in turn.
func migration(ctx context.Context, b *bench) error {
	return errors.Join(b.migration(ctx, sides()[0], workers), b.migration(ctx, sides()[1], []int{stockWorkers}))
}

func (b *bench) migration(ctx context.Context, on side, workers []int) error {
	p, err := b.place(on, "migrate", b.quick)
	if err != nil {
		return err
	}
	s, err := p.launch(ctx)
	if err != nil {
		return err
	}
	defer s.halt()
	if err := s.ready(ctx); err != nil {
		return err
	}
	for round := range b.starts() {
		for _, atOnce := range measure.InTurn(workers, round) {
			for _, side := range measure.InTurn([]string{creates, migrates}, round) {
				if err := b.once(ctx, s, side, atOnce); err != nil {
					return fmt.Errorf("%s, %d at once: %w", side, atOnce, err)
				}
			}
		}
	}
	return nil
}

// once measures one side, on nothing that an earlier one left.
func (b *bench) once(ctx context.Context, s *server, side string, atOnce int) error {
	if _, err := b.stored.Delete(ctx, s.secretKey(""), clientv3.WithPrefix()); err != nil {
		return err
	}
	if err := b.compact(ctx); err != nil {
		return err
	}
	work, err := b.creation(s, atOnce)
	if side == migrates {
		work, err = b.rewriting(ctx, s, atOnce)
	}
	if err != nil {
		return err
	}
	cpu, began := s.cpu(), time.Now()
	if err := work(ctx); err != nil {
		return err
	}
	took, spent, each := time.Since(began), s.cpu()-cpu, 1/float64(b.moved)
	b.Add(migrateName(s.place.side.program, atOnce).Of(side), one(measure.NsPerOp, float64(took)*each), one(measure.CPUNsPerOp, float64(spent)*each))
	return s.stores(ctx, b.lab, secretName(0))
}

func (b *bench) creation(s *server, atOnce int) (func(context.Context) error, error) {
	c, err := newCreator(s.place, b.moved, atOnce)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		defer c.close()
		return c.run(ctx, atOnce)
	}, nil
}

// rewriting is what atrest migrate has done between its two looks into etcd.
func (b *bench) rewriting(ctx context.Context, s *server, atOnce int) (func(context.Context) error, error) {
	plain := *s.place
	plain.side.encrypts = false
	if err := b.fill(ctx, &plain, b.moved, 1); err != nil {
		return nil, err
	}
	// Of one transaction the watch cache may show a part. No apiserver writes several keys in
	// one, so that a list waits for none but the last revision: that has to be of one key.
	if err := b.fill(ctx, &plain, 1, 1); err != nil {
		return nil, err
	}
	cluster, err := migrate.NewCluster(s.config, clock.RealClock{})
	return func(ctx context.Context) error {
		secrets := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
		reached, err := cluster.Rewrite(ctx, secrets, migrate.Checkpoint{}, migrate.Options{Workers: atOnce, Progress: func(migrate.Progress) {}})
		if err == nil && reached.Counts.Rewritten != int64(b.moved) {
			err = fmt.Errorf("not %d were rewritten: %+v", b.moved, reached.Counts)
		}
		return err
	}, err
}

// audits counts ever more objects in etcd.
func audits(ctx context.Context, b *bench) error {
	program := b.file("atrest")
	if text, err := exec.CommandContext(ctx, "go", "build", "-o", program, "github.com/kube-atrest/atrest/cmd/atrest").CombinedOutput(); err != nil {
		return errors.Join(err, errors.New(string(text)))
	}
	config := b.file("audited.yaml")
	if err := os.WriteFile(config, encryption(b.quick), 0o600); err != nil {
		return err
	}
	args := []string{"audit", "--endpoints", b.etcdEndpoint(), "--rate", "0"}
	for _, part := range []int{100, 10, 3, 1} {
		n := b.audited / part
		name := fmt.Sprintf("audit-%d", n)
		p := &place{side: sides()[0], prefix: "/" + name}
		if err := b.fill(ctx, p, n, auditedDEKs); err != nil {
			return err
		}
		for range 3 {
			for side, more := range map[string][]string{counts: nil, decrypted: {"--config", config, "--decrypt"}} {
				took, most, err := watched(ctx, program, append(append(args, "--prefix", p.prefix), more...)...)
				if err != nil {
					return err
				}
				b.Add(auditName(n).Of(side), one(measure.NsPerOp, float64(took)/float64(n)), one(peakBytes, most))
			}
		}
		if _, err := b.stored.Delete(ctx, p.prefix, clientv3.WithPrefix()); err != nil {
			return err
		}
		if err := b.compact(ctx); err != nil {
			return err
		}
	}
	return nil
}

// watched runs a command, and gives how long it took and how much memory it had at most.
func watched(ctx context.Context, program string, args ...string) (took time.Duration, most float64, err error) {
	command := exec.CommandContext(ctx, program, args...)
	said, err := os.Create(program + ".out")
	if err != nil {
		return 0, 0, err
	}
	defer said.Close()
	command.Stdout, command.Stderr = said, said
	began := time.Now()
	if err := command.Start(); err != nil {
		return 0, 0, err
	}
	p := &process{command: command, exited: make(chan struct{})}
	go func() {
		err = command.Wait()
		took = time.Since(began)
		close(p.exited)
	}()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-look.C:
			most = max(most, p.memory(vmHWM))
		case <-p.exited:
			if err != nil {
				text, _ := os.ReadFile(said.Name())
				err = fmt.Errorf("%s %s: %w: %s", filepath.Base(program), args[0], err, text)
			}
			return took, most, err
		}
	}
}
