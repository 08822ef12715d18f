package journal

// Pos is a place in the journal: the segment's ordinal and the byte offset in
// it. Positions of one journal compare as they were written.
type Pos uint64

// Disk is what the journal asks of the file system.
type Disk interface{}
