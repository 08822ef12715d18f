package mount

import (
	"syscall"

	"holt/internal/workspace"
)

// seekBlock is the granularity of data and holes in a mount, bytes: a written
// byte makes its block data, as on ext4. Programs that detect the granularity
// find this one; the workspace itself is exact.
const seekBlock = 4096

// mostSeeks is the maximum number of blocks with both data and a hole that one
// request inspects. After that the end of the file counts as the next hole.
const mostSeeks = 1000

// seekBlocks finds data or a hole at or after off in a file of size bytes, in
// blocks; seek finds them in bytes.
func seekBlocks(seek func(off int64, whence uint32) (int64, error), size, off int64, whence uint32) (int64, error) {
	if off < 0 || off >= size {
		return 0, syscall.ENXIO
	}
	at := off &^ (seekBlock - 1)
	if whence == workspace.SeekData {
		found, err := seek(at, workspace.SeekData)
		return max(off, found&^(seekBlock-1)), err
	}
	for range mostSeeks {
		data, err := seek(at, workspace.SeekData)
		if err == syscall.ENXIO || err == nil && data >= at+seekBlock {
			return min(max(off, at), size), nil
		}
		if err != nil {
			return 0, err
		}
		hole, err := seek(data, workspace.SeekHole)
		if err != nil {
			return 0, err
		}
		if at = (hole + seekBlock - 1) &^ (seekBlock - 1); at >= size {
			break
		}
	}
	return size, nil
}
