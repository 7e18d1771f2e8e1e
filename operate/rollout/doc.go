// Package rollout carries a rotation out on a real cluster. It reads what the
// configuration files of the apiservers say and plans from them, keeps the state
// in a folder, and is the world that package drive acts in: files that are
// brought from stage to stage, canaries, rewriting and counting.
//
// A file that is none of the plan's is somebody else's and stays as it is, and
// each file that was ever in effect is kept beside the state, as what was written
// with it needs it.
package rollout
