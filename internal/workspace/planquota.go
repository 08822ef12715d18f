package workspace

import (
	"syscall"

	"holt"
)

// quota refuses a plan that would store more than may be. What is over a quota
// already may still become less.
func (p *planEncoder) quota() error {
	var bytes, inodes int64
	for ino, w := range p.plan.inodes {
		in, err := p.get(ino)
		switch {
		case err == nil:
			bytes -= in.alloc
		case err == syscall.ENOENT:
			inodes++
		default:
			return err
		}
		bytes += w.allocated()
	}
	for _, in := range p.freed {
		if _, wanted := p.plan.inodes[in.ino]; !wanted {
			bytes -= in.alloc
		}
		inodes--
	}
	q := p.t.opt.Quota
	if q.Bytes > 0 && bytes > 0 && int64(p.t.count.Allocated)+bytes > q.Bytes ||
		q.Files > 0 && inodes > 0 && int64(p.t.count.Inodes)+inodes > q.Files {
		return holt.Errorf(holt.OutOfSpace, "the workspace would exceed its quota").
			WithHint("choose fewer paths, or raise the quota: holt workspace quota")
	}
	return nil
}

// allocated returns how many bytes its extents will cover.
func (w wantedInode) allocated() (n int64) {
	if w.made == nil {
		return w.row.alloc
	}
	for _, e := range w.made.all {
		n += int64(e.n)
	}
	return n
}
