// Package reload notices that a file changed and swaps what was built from it,
// while the storage layer goes on reading and writing.
//
// In comes the path of a file and a function that builds a [Generation] from
// its bytes. Out goes a [Set], a value.ResourceTransformers that is always
// current. The package never knows what is in the file and never logs it.
//
// # Swapping
//
// A [Set] hands out one handle per resource. An operation on a handle uses the
// generation that was current when the operation began, for all resources at
// once, and no operation fails because of a swap:
//
//   - The replaced generation is closed when the last operation that entered
//     it has left it, or when a bound has passed.
//   - An operation that fails on a replaced generation is done again on the
//     current one before its error counts.
//   - A request is many operations: a LIST that began before the swap may meet
//     values that only the replaced generation can read, be it that their key
//     is gone or that its name now means another. For the time that a
//     request may last, the last replaced generation therefore stays readable
//     to requests that began before the swap, and to nothing else.
//
// # Watching
//
// A [Controller] looks at the file when the file system reports an event and,
// because events can be missing (bind mounts, network file systems, inotify
// exhausted), at every poll. What it sees counts when the file has settled: see
// [Config.Quiet].
package reload
