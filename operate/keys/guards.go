package keys

// lax are the guards that are taken out: none, but in the tests that show what each of them
// is for. Those of a move are of package rotation.
type lax struct {
	// refused: nothing is decided while what was meant to be a record is none.
	refused bool
	// backed: nor while a configuration has a key that no record is of.
	backed bool
	// foreign: what somebody else configured is not replaced before there is a key.
	foreign bool
	// joined: other apiservers than before are a break.
	joined bool
	// resumed: so is a while in which nobody looked.
	resumed bool
	// bound: a preflight says nothing of what it was not of.
	bound bool
	// everywhere: nor of a node that it was not made on.
	everywhere bool
	// same: a plugin with the key_id of the one in use is no other key.
	same bool
	// overtake: no key is made while another one is on its way.
	overtake bool
	// busy: no key is made while all is rewritten under another key_id.
	busy bool
	// present: a key that any configuration has is not pruned.
	present bool
}
