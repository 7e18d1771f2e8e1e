package vaulttest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// process is a real Vault, which obeys lines on its standard input.
type process struct {
	commands io.WriteCloser
	answers  *bufio.Scanner
}

// startReal starts the program of a real Vault, until the test ends.
func (s *Server) startReal(program string, secured bool) {
	s.t.Helper()
	arguments := []string{"--listen", "127.0.0.1:0"}
	if secured {
		certFile, keyFile := s.issuer.serverFiles(s.t)
		arguments = append(arguments, "--tls-cert", certFile, "--tls-key", keyFile)
	}
	command := exec.Command(program, arguments...)
	command.Stderr = os.Stderr
	commands, err := command.StdinPipe()
	require.NoError(s.t, err)
	answers, err := command.StdoutPipe()
	require.NoError(s.t, err)
	require.NoError(s.t, command.Start())
	p := &process{commands: commands, answers: bufio.NewScanner(answers)}
	s.t.Cleanup(func() {
		commands.Close()
		assert.NoError(s.t, command.Wait())
	})
	var greeting struct {
		Address, Token string
		UnsealKeys     []string
	}
	require.True(s.t, p.answers.Scan(), "it said nothing: %v", p.answers.Err())
	require.NoError(s.t, json.Unmarshal(p.answers.Bytes(), &greeting))
	require.Len(s.t, greeting.UnsealKeys, 1)
	s.Address, s.RootToken, s.unsealKey, s.running = greeting.Address, greeting.Token, greeting.UnsealKeys[0], p
}

func (p *process) down() error { return p.obeyed("down") }
func (p *process) up() error   { return p.obeyed("up") }

func (p *process) obeyed(line string) error {
	if _, err := fmt.Fprintln(p.commands, line); err != nil {
		return err
	}
	if !p.answers.Scan() || strings.TrimSpace(p.answers.Text()) != line {
		return fmt.Errorf("the real Vault did not do %q: %w", line, p.answers.Err())
	}
	return nil
}
