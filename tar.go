package holt

// TarReport is the result of unpacking a tar stream.
type TarReport struct {
	Files   int64    `json:"files"`
	Dirs    int64    `json:"dirs"`
	Links   int64    `json:"links" doc:"symbolic links"`
	Bytes   int64    `json:"bytes" doc:"size of files"`
	Left    int64    `json:"left,omitempty" doc:"number of skipped entries: devices, pipes, hard links, sparse files"`
	LeftOut []string `json:"left_out,omitempty" doc:"paths of the first skipped entries"`
}
