package providers

// WarmAtOnce is how many DEKs are unwrapped at once.
const WarmAtOnce = warmAtOnce
