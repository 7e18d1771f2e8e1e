package rotation

// Joining is the stage of a [Move] for an apiserver of which nobody knows what it has, such
// as one that came instead of another, or whose file is gone: it reads all that is stored
// and that any other may write, and all others read what it writes. It is [Before] of no
// Move.
func (s State) Joining() Stage {
	if s.Move == nil {
		return Before
	}
	stage := Before
	switch t := s.Move; t.Step {
	case stepAdd:
		if t.Asked {
			stage = Added
		}
	case stepSwap:
		stage = Added
	case stepMigrate, stepProve, stepRemove:
		stage = Swapped
	case stepConfirm, stepDone:
		stage = Removed
	}
	return mirrored(stage, s.Move.Back != nil)
}
