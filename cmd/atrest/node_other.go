//go:build !linux

package main

import (
	"errors"
	"net"

	"github.com/kube-atrest/atrest/operate/node"
)

var errNoNode = errors.New("plugins are run on Linux alone")

func launch([]string) error { return errNoNode }

func runnerOf(*nodeCommand) node.Runner { return noRunner{} }

func keepPrivate() {}

// noRunner runs nothing.
type noRunner struct{}

func (noRunner) Start(node.Spec) error                 { return errNoNode }
func (noRunner) Runs(node.Spec) (bool, error)          { return false, errNoNode }
func (noRunner) Proves(node.Spec, *net.UnixConn) error { return errNoNode }
func (noRunner) Stop(node.Spec, bool) error            { return errNoNode }
func (noRunner) Clear(node.Spec) error                 { return errNoNode }
