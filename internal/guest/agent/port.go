package agent

import (
	"context"
	"strings"

	"holt"
)

const opPorts = "port.list"

// listPorts sends the listening ports and their processes.
func (s *Server) listPorts(ctx context.Context, st *serverStream) error {
	all, err := processes()
	if err != nil {
		return err
	}
	users := make(map[int]string, len(all))
	for _, p := range all {
		users[p.PID] = p.User
	}
	tags, list := newTagger(s.opt.Cgroup), []holt.Listener{}
	for _, p := range listeners(all) {
		if p.PID == 0 && !s.opt.Machine {
			continue // a process of the host
		}
		one := holt.Listener{Protocol: p.Protocol, Address: p.Address, Port: p.Port, PID: p.PID, Process: p.Process, User: users[p.PID]}
		if p.PID != 0 {
			one = owned(one, tags.byGroup(uint32(p.PID)))
		}
		list = append(list, one)
	}
	if err := st.agree(nil); err != nil {
		return err
	}
	return sendItems(st, list)
}

// owned adds the owner of a port by its process's tag.
func owned(l holt.Listener, tag string) holt.Listener {
	kind, name, _ := strings.Cut(tag, "/")
	switch kind {
	case "run":
		l.Run = holt.RunID(name)
	case "terminal":
		l.Terminal = holt.TerminalID(name)
	case "unit":
		l.Service = strings.TrimSuffix(name, ".service")
	}
	return l
}

// Limits of a list of ports. Further ports are omitted.
const (
	MostPorts     = 4096
	mostPortBytes = 4 << 20
)

// Ports lists the first [MostPorts] listening ports in the guest. Their owners
// are as reported by the guest; ids are checked for their form only.
func (c *Client) Ports(ctx context.Context) ([]holt.Listener, error) {
	s, err := c.open(ctx, opPorts, nil, nil)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	list := []holt.Listener{}
	err = readList(s, mostPortBytes, func(l holt.Listener) error {
		if len(list) < MostPorts {
			list = append(list, vetListener(l))
		}
		return nil
	})
	return list, describe(ctx, opPorts, err)
}

// vetListener sanitises a guest's description of a port.
func vetListener(l holt.Listener) holt.Listener {
	for _, word := range []*string{&l.Protocol, &l.Address, &l.Process, &l.User, &l.Service} {
		*word = plain(*word, maxWord)
	}
	l.TerminalName = "" // the host adds it
	l.Port, l.PID = min(max(0, l.Port), 1<<16-1), max(0, l.PID)
	if _, err := holt.ParseRunID(string(l.Run)); err != nil {
		l.Run = ""
	}
	if _, err := holt.ParseTerminalID(string(l.Terminal)); err != nil {
		l.Terminal = ""
	}
	return l
}
