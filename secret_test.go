package holt

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOnRecord(t *testing.T) {
	spec := RunSpec{
		Command: "curl -H 'Bearer hunter22' example.com/hunter2 pass",
		Argv:    []string{"a", "--key=line one", "deploy-me"},
		Env:     map[OSString]OSString{"DEPLOY_TOKEN": "deploy-me", "OTHER": "example", "A_PASSWORD": "pas"},
		Secrets: Secrets{"A": "hunter2", "B": "hunter22", "KEY": "line one\nline two\n"},
		User:    "root",
	}
	got := spec.OnRecord()
	want := RunSpec{Command: "curl -H 'Bearer ***' example.com/*** pass", Argv: []string{"a", "--key=***", "***"}, User: "root"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if spec.Argv[2] != "deploy-me" || len(spec.Env) != 3 || len(spec.Secrets) != 3 {
		t.Errorf("the caller's specification changed: %+v", spec)
	}
	b, err := json.Marshal(got)
	if err != nil || strings.Contains(string(b), "hunter") || strings.Contains(string(b), "deploy-me") {
		t.Errorf("%s, %v", b, err)
	}
}

func TestSecretName(t *testing.T) {
	for name, want := range map[string]bool{
		"GITHUB_TOKEN": true, "token": true, "AWS_SECRET_ACCESS_KEY": true, "DB_PASSWORD": true, "PGPASSWORD": true,
		"OPENAI_API_KEY": true, "MY_SECRET_THING": true, "MYSQL_PWD": true, "PWD": false, "PATH": false, "KEY": false,
		"SORT_KEY": false, "HOME": false, "": false, "TOKENIZERS_PARALLELISM": false,
	} {
		if got := SecretName(name); got != want {
			t.Errorf("SecretName(%q) = %v", name, got)
		}
	}
}
