package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"holt"
)

const buyersAbout = `
What buyers compare, of template *%s* with one virtual processor and 512 MiB, on engine *%s*. The computer that is forked, paused and resumed holds 200 MiB.
*On this machine* is the Go client over the unix socket, *HTTP* the same over TCP with a token. A fork's memory is what its QEMU does not share, 2 s after its first answer.`

const (
	onNodeColumn = "on this machine"
	httpColumn   = "HTTP"
)

// buyersGroup measures the ten figures that buyers compare.
func buyersGroup(ctx context.Context, b *bench) (*section, error) {
	dir, err := b.sub(buyers)
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	near, err := startDaemonWith(ctx, b, filepath.Join(dir, "data"), "auto", "", nil, "--listen", "127.0.0.1:"+port, "--token-rate", "0")
	if err != nil {
		return nil, err
	}
	far := &daemon{b: b, data: near.data}
	if far.client, _, err = near.overTCP(port); err != nil {
		return nil, err
	}
	defer far.client.Close()
	engine, _, _ := strings.Cut(b.accelerator, "-")
	here, there := &seat{d: near, engine: engine}, &seat{d: far, engine: engine}
	if err := here.open(ctx); err != nil {
		return nil, err
	}
	out := &section{title: "What buyers compare", columns: []string{onNodeColumn, httpColumn}, about: fmt.Sprintf(buyersAbout, b.template, b.accelerator)}
	for _, w := range []work[*seat]{
		{name: "create → first command answered", unit: millis, measure: createSeat, after: deleteOther},
		{name: "run of a program (`true`), warm", unit: millis, measure: shortRuns},
		{name: "fork → first command answered", unit: millis, measure: forkSeats(1)},
		{name: "10 forks at once → all have answered", unit: millis, measure: forkSeats(10), most: 3},
		{name: "memory of a fork's own", unit: megabytesHeld, most: 3, measure: func(ctx context.Context, s *seat) (held float64, err error) {
			_, err = s.d.fork(ctx, s.computer(), 1, func(id holt.ComputerID) (err error) {
				held, err = s.d.ownMemory(ctx, id, new(figure))
				return err
			})
			return held, err
		}},
		{name: "pause of a snapshot", unit: millis, measure: func(ctx context.Context, s *seat) (float64, error) {
			m, err := s.d.client.Computers.Snapshot(ctx, s.computer(), holt.SnapshotSpec{}, "")
			if err == nil {
				_, err = s.d.client.Snapshots.Delete(ctx, string(m.ID), "")
			}
			return m.PauseMS, err
		}},
		{name: "resume → first command answered", unit: millis, before: pauseSeat, measure: oneRun},
		{name: "1,000 small files written in the workspace", unit: millis, most: 5, measure: timedIn("rm -rf /home/agent/s && mkdir /home/agent/s && cd /home/agent/s && for i in $(seq 1000); do echo $i >$i; done")},
		{name: "1,000 small files read in the workspace, guest's cache dropped", unit: millis, most: 5, before: func(ctx context.Context, s *seat) error {
			_, err := s.sh(ctx, "sync; echo 3 >/proc/sys/vm/drop_caches || true")
			return err
		}, measure: timedIn("cat /home/agent/s/* >/dev/null")},
		{name: "256 MiB written in the workspace and made durable", unit: megabytes, most: 5, measure: func(ctx context.Context, s *seat) (float64, error) {
			began := time.Now()
			_, err := s.sh(ctx, "dd if=/dev/zero of=/home/agent/large bs=1M count=256 conv=fsync status=none")
			return 256 * (1 << 20) / 1e6 / time.Since(began).Seconds(), err
		}},
	} {
		if w.unit == megabytesHeld && engine != "qemu" {
			continue // a sandbox is many processes, which share the guest's memory
		}
		f, err := rounds(ctx, b, b.rounds, w, []column[*seat]{{onNodeColumn, here}, {httpColumn, there}})
		if err != nil {
			return nil, err
		}
		out.figures = append(out.figures, f)
	}
	return out, nil
}
