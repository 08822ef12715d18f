package daemon_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"holt"
	"holt/client"
)

// TestRepeatsDoNothingMore: every call that takes an idempotency key is made twice with the same one. The second gets the
// first answer, and nothing is there that was not after the first; the same key with another body is refused.
func TestRepeatsDoNothingMore(t *testing.T) {
	d := doorOf(t, up(t, config(t, home(t))))
	owner := d.token("default", "owner", "admin")
	c := d.client(t, owner)
	was := bodies["addSSHKey"]
	bodies["addSSHKey"] = `{"key":"$sshkey"}`
	defer func() { bodies["addSSHKey"] = was }()
	done, refused := 0, []string{}
	var ids vars
	for i, r := range d.all {
		if !r.keyed || r.id == "endDaemon" { // which ends it
			continue
		}
		if ids == nil {
			ids, _ = belongings(t, c, fmt.Sprintf("one-%d", i))
			ids["tenant"], ids["sshkey"], ids["otherkey"] = "default", sshKey(t), sshKey(t)
		}
		usual := maps.Clone(ids)
		prepare(t, c, r.id, ids)
		key := "repeat-" + r.id
		status, first := d.call(r, ids, owner, key)
		before := d.world(r, ids, owner)
		again, second := d.call(r, ids, owner, key)
		switch after := d.world(r, ids, owner); {
		case again != status:
			t.Errorf("%s: %d, and repeated %d\n%s\n%s", r.id, status, again, first, second)
		case status < 300 && lasting(first) != lasting(second):
			t.Errorf("%s: the answer to a repeat is another\n%s\n%s", r.id, first, second)
		case after != before:
			t.Errorf("%s: a repeat has an effect\n%s\n%s", r.id, before, after)
		case status >= 300:
			refused = append(refused, fmt.Sprintf("%s %d", r.id, status))
		default:
			done++
		}
		if status < 300 && r.body {
			if status, body := d.other(r, ids, owner, key); status != http.StatusConflict && status != http.StatusBadRequest {
				t.Errorf("%s: the key with another body: %d %s", r.id, status, body)
			} else if after := d.world(r, ids, owner); after != before {
				t.Errorf("%s: the key with another body has an effect\n%s\n%s", r.id, before, after)
			}
		}
		if r.id == "createJob" { // whose computer comes and goes
			var job holt.Job
			if err := json.Unmarshal([]byte(first), &job); err != nil {
				t.Fatal(err)
			}
			if err := c.Jobs.Follow(t.Context(), job.ID, 0, func(holt.RunEvent) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		ids = usual
		if r.method == http.MethodDelete || strings.HasPrefix(r.id, "stop") || strings.HasPrefix(r.id, "pause") || strings.HasPrefix(r.path, "/v1/uploads") {
			if _, err := c.Computers.Delete(t.Context(), ids["computer"], ""); err != nil && holt.CodeOf(err) != holt.NotFound {
				t.Errorf("after %s: %v", r.id, err)
			}
			ids = nil // others, which are whole
		}
	}
	t.Logf("counts: %d calls repeated; refused both times: %s", done, strings.Join(refused, ", "))
	if done < 45 {
		t.Errorf("only %d calls could be made", done)
	}
}

// prepare makes what some calls need beside what belongs to a computer.
func prepare(t *testing.T, c *client.Client, call string, ids vars) {
	t.Helper()
	ctx, of := t.Context(), ids["computer"]
	var err error
	switch call {
	case "createWorkspace", "createComputer":
		var w holt.Workspace
		if w, err = c.Workspaces.Create(ctx, holt.WorkspaceSpec{Name: "free-" + strings.ToLower(call)}, ""); err == nil {
			ids["workspace"] = string(w.ID)
		}
	case "deleteWorkspace":
		var w holt.Workspace
		if w, err = c.Workspaces.Create(ctx, holt.WorkspaceSpec{Name: "gone"}, ""); err == nil {
			ids["workspace"] = string(w.ID)
		}
	case "mergeWorkspace":
		var f holt.Forked
		if f, err = c.Workspaces.Fork(ctx, ids["workspace"], holt.ForkSpec{}, ""); err == nil {
			ids["workspace"] = string(f.Workspaces[0].Workspace.ID)
		}
	case "renameFile":
		_, err = c.Files.Write(ctx, of, "/tmp/a", holt.WriteSpec{}, strings.NewReader("a"))
	case "signalRun", "undoRun":
		command := "echo made > made"
		if call == "signalRun" {
			command = "sleep 1000"
		}
		var run holt.Run
		if run, err = c.Runs.Start(ctx, of, holt.RunSpec{Command: holt.OSString(command)}, ""); err == nil {
			ids["run"] = string(run.ID)
		}
		if err == nil && call == "undoRun" {
			err = c.Runs.Follow(ctx, run.ID, 0, func(holt.RunEvent) error { return nil })
		}
	}
	if err != nil {
		t.Fatalf("before %s: %v", call, err)
	}
}

// other makes a call with another body.
func (d *door) other(r route, v vars, token, key string) (int, string) {
	d.t.Helper()
	usual := bodies[r.id]
	defer func() { bodies[r.id] = usual }()
	if bodies[r.id] = otherBodies[r.id]; bodies[r.id] == "" {
		bodies[r.id] = strings.Replace(usual, `"}`, `x"}`, 1)
	}
	if bodies[r.id] == usual {
		d.t.Fatalf("%s: say in otherBodies what else could be sent to it", r.id)
	}
	return d.call(r, v, token, key)
}

// world is how many things there are of each kind after a call. A job's computer comes and goes by itself.
func (d *door) world(called route, v vars, token string) string {
	d.t.Helper()
	var out strings.Builder
	for _, r := range d.all {
		if r.method != http.MethodGet || !strings.HasPrefix(r.id, "list") || called.id == "createJob" && r.id != "listJobs" || r.id == "listAudit" || r.id == "listServices" || r.id == "listComputerSecrets" { // which the engine has none of
			continue
		}
		status, body := d.call(r, v, token, "")
		var page holt.Page[json.RawMessage]
		if status == http.StatusOK && json.Unmarshal([]byte(body), &page) == nil {
			fmt.Fprintf(&out, "%s %d, ", r.id, len(page.Items))
		}
	}
	return out.String()
}

// lasting is an answer without what is shown once, and how far it is that was begun.
func lasting(answer string) string {
	var fields map[string]any
	if json.Unmarshal([]byte(answer), &fields) != nil {
		return answer
	}
	for _, name := range []string{"secret", "state", "reason", "started_at", "ended_at", "exit_code", "attempts", "computer_id", "run_id", "steps"} {
		delete(fields, name)
	}
	b, _ := json.Marshal(fields) // it was JSON
	return string(b)
}
