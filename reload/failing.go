package reload

import (
	"fmt"
	"time"
)

// tellAgain is how long a failure that only reads differently is not told of
// again: whom a content waits for may word the same trouble anew each time.
const tellAgain = time.Minute

// telling is what a hook was last told of a failure, and when.
type telling struct {
	text string
	at   time.Time
}

// failed notes that the file cannot be used. It is the same failure as before
// if it is of the same content and has the same prospects, whatever its words.
func (c *Controller[G]) failed(status Status, hash string, cause error) {
	now, again := c.config.Clock.Now(), retryable(cause)
	same := status.LastError != nil && status.FailedHash == hash && status.Retrying == again
	status.LastError = fmt.Errorf("the encryption config at %s is not in use, the one before it stays: %w", c.config.Path, cause)
	status.FailedHash, status.Retrying = hash, again
	if !same {
		status.FailedSince = now
	}
	c.status.Store(&status)
	text, hook := status.LastError.Error(), c.config.Hooks.Failed
	if same {
		if text == c.telling.text || now.Sub(c.telling.at) < tellAgain {
			return
		}
		hook = c.config.Hooks.Reworded
	}
	c.telling = telling{text, now}
	call(hook, status)
}
