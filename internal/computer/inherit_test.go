package computer

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/network"
)

// networked is an engine whose machines have networks of their own.
type networked struct{ machine.Engine }

func (networked) Capabilities() machine.Capabilities {
	return machine.Capabilities{MemorySnapshot: true, OwnNetwork: true}
}

// TestInheritNames: a fork that goes on with memory has what its parent's network knows, one that boots or resumes does not.
func TestInheritNames(t *testing.T) {
	s := &Store{registry: &registry{cfg: Config{Dir: t.TempDir(), Engines: Engines{Default: networked{}}, Networks: network.New(network.Options{})}, log: slog.New(slog.DiscardHandler)}}
	parent := holt.NewComputerID()
	const file = "network-names.json"
	write := func(id holt.ComputerID, name string) {
		dir := s.cfg.dir(id)
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, name), []byte(`{"known":[]}`), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write(parent, file)
	for _, one := range []struct {
		is   holt.ComputerState
		from *snapshot
		has  bool
	}{
		{holt.ComputerCreating, &snapshot{}, true},
		{holt.ComputerCreating, &snapshot{Snapshot: holt.Snapshot{Stopped: true}}, false},
		{holt.ComputerCreating, nil, false},
		{holt.ComputerResuming, &snapshot{}, false},
	} {
		r := &record{Computer: holt.Computer{ID: holt.NewComputerID(), State: one.is, Parent: &holt.Origin{ID: parent}}}
		write(r.ID, "record")
		(&transition{s: s, r: r, from: one.from}).inheritNames()
		if _, err := os.Stat(filepath.Join(s.cfg.dir(r.ID), file)); errors.Is(err, fs.ErrNotExist) == one.has {
			t.Errorf("%s from %v: %v", one.is, one.from, err)
		}
	}
}
