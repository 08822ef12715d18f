package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"holt/internal/cli"
	"holt/internal/door/httpapi/servertest"
)

// shape is what of a JSON answer is promised: the names and kinds of what is in it. Of a list it is
// that of its items, together.
func shape(v any, indent string) string {
	switch v := v.(type) {
	case map[string]any:
		names := make([]string, 0, len(v))
		for name := range v {
			if !strings.HasSuffix(name, "_ms") && name != "pid" { // left out where they are 0
				names = append(names, name)
			}
		}
		slices.Sort(names)
		var out strings.Builder
		for _, name := range names {
			fmt.Fprintf(&out, "%s%s: %s\n", indent, name, strings.TrimPrefix(shape(v[name], indent+"  "), indent+"  "))
		}
		return "{\n" + out.String() + strings.TrimSuffix(indent, "  ") + "}"
	case []any:
		all := map[string]any{}
		for _, item := range v {
			fields, ok := item.(map[string]any)
			if !ok {
				return "[" + shape(item, indent) + "]"
			}
			for name, value := range fields {
				all[name] = value
			}
		}
		if len(v) == 0 {
			return "[]"
		}
		return "[" + shape(all, indent) + "]"
	case string:
		return "string"
	case float64:
		return "number"
	case bool:
		return "bool"
	}
	return "null"
}

// asked are commands, each as a user writes it. {name} stands for what an earlier answer had at name.
var asked = []string{
	"computer create --name einstein --workspace-size-mb 64", "computer create --name curie", "computer list", "computer get einstein",
	"computer run einstein --receipt -- touch a", "computer run einstein --background -- sleep 100", "run list einstein", "run show {run_id}", "run signal {run_id} SIGTERM", "computer run einstein --background -- sleep 100", "run kill {run_id}",
	"computer stop curie", "computer start curie", "computer stop einstein curie", "computer start einstein nobody", "computer why-awake einstein",
	"computer update einstein --idle-timeout 2h", "computer update curie --name marie", "computer update marie --name curie", "computer hold einstein --reason thinking", "computer holds einstein", "computer ports einstein", "computer budget einstein",
	"computer network einstein --egress off", "computer snapshot einstein --name before", "snapshot show before", "snapshot diff before einstein", "computer diff einstein einstein@before", "snapshot delete before --yes", "computer pause einstein", "computer resume einstein", "computer secret list einstein", "computer resize einstein --cpus 2",
	"terminal open einstein", "terminal list einstein", "terminal signal einstein main INT", "terminal close einstein",
	"workspace create spare", "workspace list", "workspace get einstein", "workspace mkdir einstein:dir", "workspace ls einstein", "workspace du einstein", "workspace quota einstein",
	"workspace checkpoint einstein first", "workspace checkpoints einstein", "workspace diff einstein", "workspace check einstein", "workspace query einstein 'SELECT 1'", "workspace history einstein:dir",
	"workspace receipt einstein {run_id}", "workspace blame einstein:dir", "workspace fork einstein --count 1", "workspace merge einstein-1 einstein", "workspace restore einstein first", "workspace delete-checkpoint einstein first", "workspace tag einstein:dir reviewed=yes", "workspace mv einstein:dir einstein:other", "workspace rm einstein:other", "workspace update spare --name spared", "workspace mounts", "workspace delete spared",
	"schedule add einstein nightly --cron @daily true", "schedule list", "schedule show nightly", "schedule disable nightly", "schedule enable nightly", "schedule history nightly", "schedule delete nightly",
	"job list", "snapshot list", "archive get", "archive check", "archive collect", "image list", "image show base", "limit show", "top", "doctor",
	"computer cp {file} einstein:x", "workspace cp {file} einstein:y", "workspace put {file} einstein:z", "workspace export einstein {dir}/export", "workspace import einstein {dir}/export",
	"computer fork einstein --count 1", "computer snapshot einstein --name again", "snapshot restore einstein@again", "computer hold einstein --reason more", "computer release einstein {hold}", "events einstein --kind computer",
	"token create ci --scope read-only --expires 1h", "token list", "token revoke ci", "audit list --limit 20", "audit query 'SELECT op, code FROM audit'",
	"computer secret set einstein openai --host api.openai.com", "computer secret delete einstein openai",
	"service add einstein web --command 'sleep 100'", "service list einstein", "service stop einstein web", "service start einstein web", "service restart einstein web", "service delete einstein web",
	"schedule add einstein hourly --cron @hourly 'sleep 100'", "schedule update hourly --cron @daily", "schedule run hourly", "limit set --max-computers 20",
	"computer run einstein --background --interactive -- cat", "run input {run_id}", "run follow {run_id}",
	"job run true", "job list", "job get {id}", "job follow {id}", "job cancel {id}", "job delete {id}",
	"image build base", "image delete base --yes", "image prune",
	"context add near --server unix:/nowhere", "context use near", "context delete near", "context list", "context show", "debug metrics", "debug goroutines", "debug profile --kind heap -o {dir}/heap", "debug bundle -o {dir}/bundle",
	"ssh-key host", "ssh-key add {key}", "ssh-key list", "ssh-key delete laptop",
	"computer preview einstein 3000", "computer preview einstein 8080 --public", "computer previews einstein", "computer domain add einstein app.example.com 3000", "computer domain list einstein", "computer domain delete einstein app.example.com",
	"version", "computer delete curie --yes",
}

// TestAnswersKeepTheirShape: what scripts read of the answers is in testdata/json.golden.
func TestAnswersKeepTheirShape(t *testing.T) {
	d := servertest.Serve(t, servertest.Options(quietT{t}, memory(t).Nouns()), "")
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("HOLT_SOCKET", d.Socket)
	t.Setenv("HOLT_DATA_DIR", filepath.Join(home, "data"))
	var got strings.Builder
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(dir, "key.pub")
	if err := os.WriteFile(key, []byte("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ laptop\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ids := map[string]string{"{file}": file, "{dir}": dir, "{key}": key}
	for _, line := range asked {
		args := words(line)
		for i := range args {
			for name, id := range ids {
				args[i] = strings.ReplaceAll(args[i], name, id)
			}
		}
		at := slices.Index(args, "--")
		if at < 0 {
			at = len(args)
		}
		args = slices.Insert(args, at, "--json")
		var out, faults bytes.Buffer
		status := cli.Main(context.Background(), args, cli.Streams{In: strings.NewReader("value\n"), Out: &out, Err: &faults}, local())
		answer, err := answerOf(&out)
		if err != nil {
			t.Errorf("holt %s: exit status %d, no JSON: %v\n%s%s", line, status, err, out.String(), faults.String())
			continue
		}
		if fields, ok := answer.(map[string]any); ok {
			for _, within := range []any{fields, fields["run"], fields["job"]} {
				one, _ := within.(map[string]any)
				switch id, _ := one["id"].(string); {
				case strings.HasPrefix(id, "run_"):
					ids["{run_id}"] = id
				case strings.HasPrefix(id, "job_"):
					ids["{id}"] = id
				case strings.HasPrefix(line, "computer hold ") && id != "":
					ids["{hold}"] = id
				}
			}
		}
		fmt.Fprintf(&got, "=== holt %s (exit status %d)\n%s\n", line, status, shape(answer, "  "))
	}
	const path = "testdata/json.golden"
	if *cli.Rewrite {
		if err := os.WriteFile(path, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("%s is not in step (go test -update):\n%s", path, diff)
	}
}

// answerOf decodes what a command printed: an answer, or of a stream a list of what came.
func answerOf(out *bytes.Buffer) (any, error) {
	said := out.String()
	var all []any
	for dec := json.NewDecoder(strings.NewReader(said)); ; {
		var one any
		if err := dec.Decode(&one); errors.Is(err, io.EOF) && len(all) > 0 {
			break
		} else if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	if len(all) == 1 {
		return all[0], nil
	}
	return all, nil
}

// words splits a line as a shell does that knows single quotes only.
func words(line string) (out []string) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			out = append(out, part)
			continue
		}
		out = append(out, strings.Fields(part)...)
	}
	return out
}
