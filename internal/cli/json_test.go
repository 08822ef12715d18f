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
	"regexp"
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
			if !strings.HasSuffix(name, "_ms") && !slices.Contains([]string{"pid", "guest_bytes", "came", "gone"}, name) { // left out, or empty, where there is none at that moment
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

// asked matches the heading of a command in the golden file, as a user writes it. {name} stands for what an earlier answer had
// at name. To add a command, write its heading there, as "=== holt note list", and run go test -update.
var asked = regexp.MustCompile(`(?m)^=== holt (.+?)( \(exit status \d+\))?$`)

// TestAnswersKeepTheirShape: what scripts read of the answers is in testdata/json.golden.
func TestAnswersKeepTheirShape(t *testing.T) {
	d := servertest.Serve(t, servertest.Options(quietT{t}, withImages(servertest.NewSandboxed(t).Nouns())), "")
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
	const path = "testdata/json.golden"
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, heading := range asked.FindAllStringSubmatch(string(want), -1) {
		line := heading[1]
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
				case strings.HasPrefix(id, "lnk_"):
					ids["{link}"] = id
				case strings.HasPrefix(id, "HOLT"):
					ids["{s3_key}"] = id
				case strings.HasPrefix(id, "job_"):
					ids["{id}"] = id
				case strings.HasPrefix(line, "computer hold ") && id != "":
					ids["{hold}"] = id
				}
			}
		}
		fmt.Fprintf(&got, "=== holt %s (exit status %d)\n%s\n", line, status, shape(answer, "  "))
	}
	if *cli.Rewrite {
		if err := os.WriteFile(path, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
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
