package servertest

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"

	"holt"
	"holt/internal/door/preview"
)

// previewsAt is where the previews of these nouns would be.
var previewsAt = net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4647}

// previewed is the computers as previews see them. The previews are the real ones.
type previewed struct{ computers }

func (m *Memory) openPreviews() (err error) {
	m.previews, err = preview.Open(preview.Config{
		DB: m.control, Keys: m.keys, KeyFile: filepath.Join(m.dir, "preview.key"),
		Computers: previewed{computers{m}}, Ports: previewPorts{ports{m}}, Tokens: nil, Log: slog.New(slog.DiscardHandler),
	})
	if err == nil {
		m.previews.ListensAt(&previewsAt, false)
		m.previews.ListensAtLoopback(&previewsAt)
	}
	return err
}

// Wake starts a computer, and marks nothing.
func (p previewed) Wake(ctx context.Context, ref string, _ holt.UseKind, _ string) (holt.Computer, func(), error) {
	c, err := p.Start(ctx, ref, "")
	return c, func() {}, err
}

type previewPorts struct{ ports }

func (p previewPorts) Reach(ctx context.Context, computer string, to holt.PortAddress) (holt.PortConn, error) {
	return p.Connect(ctx, computer, to)
}
