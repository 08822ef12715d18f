package agent

// modern returns the number of a system call: this architecture has only newer ones.
func modern(nr int) int { return nr }
