package upload

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/hosterror"
)

// Two limits bound uploads. The declared sizes of a tenant's open uploads are at most half of the disk's free room without
// that tenant's uploads. The received bytes of all tenants are at most three quarters of the free room without any upload. So
// declared sizes take no room from other tenants, and the received bytes of one tenant leave room for others.

// checkEvery is the number of bytes between two checks of the free room.
const checkEvery = 16 << 20

// declarable returns the maximum of the declared sizes of a tenant's open uploads, bytes.
func (s *Store) declarable(ctx context.Context, tenant string) (int64, error) {
	free, all, err := s.disk()
	if err != nil {
		return 0, err
	}
	mine, err := s.table.list(ctx, `WHERE tenant = ? AND file = ''`, tenant)
	if err != nil {
		return 0, err
	}
	for _, r := range mine {
		free += all[string(r.ID)]
	}
	return free / 2, nil
}

// room returns how many more bytes may be received.
func (s *Store) room() (int64, error) {
	free, all, err := s.disk()
	var come int64
	for _, n := range all {
		come += n
	}
	return (free+come)/4*3 - come, err
}

// disk returns the free bytes of the disk, and the size of each upload's file.
func (s *Store) disk() (free int64, all map[string]int64, err error) {
	if s.cfg.Free != nil {
		free, err = s.cfg.Free()
	} else {
		var st unix.Statfs_t
		err = unix.Statfs(s.cfg.Dir, &st)
		free = int64(st.Bavail) * st.Bsize
	}
	if err != nil {
		return 0, nil, fmt.Errorf("read free room for uploads: %w", err)
	}
	entries, err := os.ReadDir(s.cfg.Dir)
	if err != nil {
		return 0, nil, hosterror.Full(err)
	}
	all = map[string]int64{}
	for _, e := range entries {
		if info, err := e.Info(); err == nil { // else it was removed
			all[e.Name()] = info.Size()
		}
	}
	return free, all, nil
}

// reservation is room for the next bytes of a call. It avoids a check of the disk for each write.
type reservation struct {
	s    *Store
	left int64
}

// take takes n bytes, or returns OutOfSpace.
func (r *reservation) take(n int64) error {
	if n > r.left {
		room, err := r.s.room()
		if err != nil {
			return err
		}
		if n > room {
			return holt.Errorf(holt.OutOfSpace, "the disk has no room for more uploads").
				WithHint("continue at the upload's offset when others are committed or deleted; uploads may take three quarters of the free room of the disk with the data directory")
		}
		r.left = min(room, checkEvery)
	}
	r.left -= n
	return nil
}
