package httpapi_test

import (
	"testing"
	"time"

	"holt/client"
	"holt/internal/door/httpapi/servertest"
	"holt/internal/nouns"
)

func memory(t testing.TB) *servertest.Memory {
	m := servertest.New(t.TempDir())
	t.Cleanup(m.Close)
	return m
}

func TestMemoryConforms(t *testing.T) {
	servertest.Conformance(t, func(t *testing.T) nouns.Set { return memory(t).Nouns() })
}

func TestUnixSocketConforms(t *testing.T) {
	servertest.Conformance(t, func(t *testing.T) nouns.Set {
		d := servertest.Serve(t, servertest.Options(t, memory(t).Nouns()), "")
		return servertest.ClientNouns(d.Client(t, time.Minute))
	})
}

func TestTCPConforms(t *testing.T) {
	servertest.Conformance(t, func(t *testing.T) nouns.Set {
		d := servertest.Serve(t, servertest.Options(t, memory(t).Nouns()), "")
		c, err := client.New(client.Options{Host: d.Addr, Token: servertest.Secret})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return servertest.ClientNouns(c)
	})
}
