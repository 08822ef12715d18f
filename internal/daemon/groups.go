package daemon

import "holt/internal/engine/cgroup"

// openGroups makes ready what bounds the machines that this daemon starts and takes over, and removes what is
// left of those that ended while none ran. Where nothing can be bounded machines run without.
func (d *Daemon) openGroups() *cgroup.Tree {
	if d.groups, d.unbound = cgroup.Open(); d.unbound != nil {
		d.log.Warn("computers are not bounded", "err", d.unbound)
	}
	d.groups.Sweep()
	return d.groups
}

// bounds says what bounds computers, for [doctor.Examine].
func (d *Daemon) bounds() (string, error) {
	switch {
	case !d.engine.Capabilities().Isolated:
		return "computers of the engine " + d.engine.Name() + " are not bounded: it is for tests", nil
	case d.unbound != nil:
		return "", d.unbound
	}
	return d.groups.String(), nil
}
