package holt

// TarReport says what came of a tar stream of files.
type TarReport struct {
	Files   int64    `json:"files"`
	Dirs    int64    `json:"dirs"`
	Links   int64    `json:"links" doc:"symbolic ones"`
	Bytes   int64    `json:"bytes" doc:"of files"`
	Left    int64    `json:"left,omitempty" doc:"entries that were left out: devices, pipes, hard links, sparse files"`
	LeftOut []string `json:"left_out,omitempty" doc:"the first of them"`
}
