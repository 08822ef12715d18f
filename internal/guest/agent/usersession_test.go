package agent

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSessionVariables: users with a session get its variables, in a machine only.
func TestSessionVariables(t *testing.T) {
	agent, other := account{Name: "agent", UID: 1000}, account{Name: "ci", UID: 1500}
	is := func(uid string) map[string]string {
		return map[string]string{"XDG_RUNTIME_DIR": "/run/user/" + uid, "DBUS_SESSION_BUS_ADDRESS": "unix:path=/run/user/" + uid + "/bus"}
	}
	none := map[string]string{}
	for _, c := range []struct {
		files map[string]string
		user  account
		want  map[string]string
	}{
		{map[string]string{GuestPath: "", "/run/user/1000/bus": ""}, agent, is("1000")},
		{map[string]string{GuestPath: "", lingerDir + "/agent": ""}, agent, is("1000")}, // it is about to start
		{map[string]string{GuestPath: "", lingerDir + "/agent": ""}, other, none},
		{map[string]string{GuestPath: "", "/run/user/1500/bus": ""}, other, is("1500")},
		{map[string]string{"/run/user/1000/bus": ""}, agent, none}, // the host's own, of an agent without a machine
	} {
		got := map[string]string{}
		sessionVariables(got, guestWith(t, c.files), c.user)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%v, %v: %s", c.files, c.user, diff)
		}
	}
}
