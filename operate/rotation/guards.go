package rotation

// lax are the guards that are taken out: none, but in the tests that show what each
// of them is for.
type lax struct {
	// identity: no file changes before each apiserver was shown to write into the
	// etcd that is counted what all others read.
	identity bool
	// shown: the same is so of what is written with now, before it is relied upon.
	shown bool
	// bound: what was shown of another process or configuration is not shown.
	bound bool
	// answered: nothing is final while one does not answer, however lately it did.
	answered bool
	// since: each was shown again since the count began that is relied upon.
	since bool
	// nothing: an apiserver of which nothing could be shown is in the way once there
	// is something that could have been.
	nothing bool
	// unnamed: so is an apiserver that nobody named.
	unnamed bool
	// after: a count that began before the last change says nothing.
	after bool
	// unseen: nor does one that began before the last time when an apiserver was
	// unseen, or unsettled.
	unseen bool
	// late: nor one that began so soon after that time that a write which was under
	// way then may have ended since.
	late bool
	// restarted: nor one that began before an apiserver was started anew.
	restarted bool
	// sound: nor one of nothing, or of less.
	sound bool
	// etcds: nor one of other etcd clusters than those that are written into.
	etcds bool
	// counted: nor one without what was shown to be there.
	counted bool
	// confirm: it is counted once more when the old provider is gone.
	confirm bool
	// resume: what was proved before a pause is proved again.
	resume bool
	// elsewhere: a key_id that something else is stored under or names may not go.
	elsewhere bool
	// untold: nor may any while something does not tell what it is stored under.
	untold bool
	// same: a plugin that names the key_id of the old one does not follow it.
	same bool
}
