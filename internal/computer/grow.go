package computer

import (
	"context"
	"time"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/guest/agent"
	"holt/internal/hosterror"
)

// A new computer of a shape without a template snapshot is resumed from the snapshot of the default shape and grown before it is
// handed out. One that is smaller, or cannot be reached in whole blocks, boots.

// ancestry is the template whose snapshot a new computer is resumed from: that of its own shape or,
// if there is none, that of the default shape if it can grow to its own.
func (m *transition) ancestry() template {
	own, common := m.template(), m.template()
	common.r.CPUs, common.r.MemoryMB = defaultCPUs, defaultMemoryMB
	if !keepsTemplates(own.engine) || !own.engine.Capabilities().Growing || !outgrows(m.r.CPUs, m.r.MemoryMB) || m.s.cfg.Images.HasSnapshot(m.img.Digest, own.key()) {
		return own
	}
	return common
}

// outgrows reports whether a machine of the default shape can grow to another one.
func outgrows(cpus, memoryMB int) bool {
	more := memoryMB - defaultMemoryMB
	return cpus >= defaultCPUs && cpus <= maxCPUs() && more >= 0 && more%machine.GrowMB == 0 && (cpus > defaultCPUs || more > 0)
}

// enlarge grows a computer that was resumed from a smaller machine to its own shape. If that fails
// the computer boots instead.
func (m *transition) enlarge(ctx context.Context) error {
	if m.kept == "" || m.of.r.CPUs == m.r.CPUs && m.of.r.MemoryMB == m.r.MemoryMB {
		return nil
	}
	began := time.Now()
	err := m.grows(ctx)
	if err == nil {
		m.s.log.InfoContext(ctx, "resumed computer grown", "computer", m.r.ID, "cpus", m.r.CPUs, "memory_mb", m.r.MemoryMB, "ms", time.Since(began).Milliseconds())
		return nil
	}
	if ctx.Err() != nil {
		return gone(ctx)
	}
	m.s.log.WarnContext(ctx, "grow resumed computer; booting it instead", "computer", m.r.ID, "cpus", m.r.CPUs, "memory_mb", m.r.MemoryMB, "err", err)
	return m.again(ctx, nil)
}

func (m *transition) grows(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, growLimit)
	defer cancel()
	if err := m.s.cfg.failpoint("create/grow"); err != nil {
		return err
	}
	err := m.live.m.Grow(bounded, machine.Shape{CPUs: m.r.CPUs, MemoryMB: m.r.MemoryMB})
	if err != nil {
		return hosterror.Full(err)
	}
	has, err := m.live.m.Shape(bounded)
	if err != nil {
		return hosterror.Full(err)
	}
	if has.CPUs != m.r.CPUs || has.MemoryMB != m.r.MemoryMB {
		return holt.Errorf(holt.Unavailable, "the machine has %s and %d MiB", holt.CountOf(has.CPUs, "processor"), has.MemoryMB)
	}
	limits := m.live.limits
	return m.live.do(ctx, limits.Answer, true, func(ctx context.Context, c *agent.Client) error {
		is, err := c.Grow(ctx, holt.GuestShape{CPUs: m.r.CPUs, MemoryMB: m.r.MemoryMB, DiskSizeMB: m.r.DiskSizeMB}, limits.Answer/2)
		if err == nil && (is.CPUs < m.r.CPUs || is.MemoryMB < m.r.MemoryMB) {
			err = holt.Errorf(holt.Unavailable, "the guest uses %s and %d MiB: %s", holt.CountOf(is.CPUs, "processor"), is.MemoryMB, is.Fault)
		}
		return err
	})
}
