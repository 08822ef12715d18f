package daemon_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"strings"
	"testing"

	"holt"
	"holt/client"
)

// This file is what the tests that walk over all routes need of each noun: one to name, one that is not there, and bodies.

// belongings makes one of each thing in a tenant, as far as the local engine can, and says what they are called.
func belongings(t *testing.T, c *client.Client, name string) (byID, byName vars) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	machine, err := c.Computers.Create(ctx, holt.ComputerSpec{Name: name}, "")
	must(err)
	ws, err := c.Workspaces.Get(ctx, name)
	must(err)
	_, err = c.WorkspaceFiles.Write(ctx, name, "/reports/a", holt.WriteSpec{Parents: true}, strings.NewReader("of "+name))
	must(err)
	run, err := c.Runs.Start(ctx, name, holt.RunSpec{Command: "true"}, "")
	must(err)
	must(c.Runs.Follow(ctx, run.ID, 0, func(holt.RunEvent) error { return nil }))
	terminal, err := c.Terminals.Open(ctx, name, holt.TerminalSpec{Name: name + "-shell"}, "")
	must(err)
	schedule, err := c.Schedules.Create(ctx, holt.ScheduleSpec{Computer: name, Name: name + "-cron", Cron: "@yearly", Spec: holt.RunSpec{Command: "true"}}, "")
	must(err)
	hold, err := c.Computers.Hold(ctx, name, holt.HoldSpec{Reason: "of " + name}, "")
	must(err)
	checkpoint, err := c.History.Checkpoint(ctx, name, holt.CheckpointSpec{Name: name + "-point"}, "")
	must(err)
	job, err := c.Jobs.Create(ctx, holt.JobSpec{Run: holt.RunSpec{Command: "true"}}, "")
	must(err)
	must(c.Jobs.Follow(ctx, job.ID, 0, func(holt.RunEvent) error { return nil }))
	token, err := c.Tokens.Create(ctx, holt.TokenSpec{Name: name + "-token"}, "")
	must(err)
	s3key, err := c.S3Keys.Create(ctx, string(token.ID), "")
	must(err)
	key, err := c.SSHKeys.Add(ctx, holt.SSHKeySpec{Key: sshKey(t), Name: name + "-key"}, "")
	must(err)
	inputs, err := c.Jobs.Send(ctx, packed(t, "sent", "hello"))
	must(err)
	upload, err := c.Uploads.Create(ctx, holt.UploadSpec{Computer: name, Path: "/tmp/of-" + holt.OSString(name), Size: 6}, "")
	must(err)
	artifact, err := c.Artifacts.Publish(ctx, holt.ArtifactSpec{Workspace: name, Path: "/reports/a", Bucket: holt.DefaultBucket, Name: name + "-report"}, "")
	must(err)
	_, err = c.Artifacts.CreateBucket(ctx, holt.BucketSpec{Name: name + "-bucket"}, "")
	must(err)
	domain := domainOf(machine.ID)
	_, err = c.Previews.SetDomain(ctx, name, domain, holt.PreviewDomainSpec{Port: 80})
	must(err)
	byID = vars{
		"artifact": string(artifact.ID), "bucket": name + "-bucket",
		"s3key": s3key.ID, "key": string(key.ID), "upload": string(upload.ID), "port": "80", "domain": domain,
		"computer": string(machine.ID), "workspace": string(ws.ID), "run": string(run.ID), "terminal": string(terminal.ID), "schedule": string(schedule.ID),
		"hold": string(hold.ID), "checkpoint": checkpoint.Name, "job": string(job.ID), "token": string(token.ID),
		"snapshot": string(holt.NewSnapshotID()), "inputs": string(inputs.ID), "service": "web", "secret": "KEY", "link": string(holt.NewArtifactLinkID()), "image": "base", "tenant": "team-a",
	}
	byName = vars{}
	for k, v := range byID {
		byName[k] = v
	}
	byName["computer"], byName["workspace"], byName["terminal"], byName["schedule"], byName["token"], byName["key"], byName["artifact"] = name, name, terminal.Name, schedule.Name, token.Name, key.Name, "artifacts/"+name+"-report"
	return byID, byName
}

// sshKey is a public key that nobody else has.
func sshKey(t *testing.T) string {
	t.Helper()
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	var wire []byte
	for _, part := range [][]byte{[]byte("ssh-ed25519"), public} {
		wire = append(binary.BigEndian.AppendUint32(wire, uint32(len(part))), part...)
	}
	return "ssh-ed25519 " + base64.StdEncoding.EncodeToString(wire)
}

// domainOf is a domain that nobody else has: they are of all tenants.
func domainOf(id holt.ComputerID) string {
	return strings.ReplaceAll(string(id), "_", "-") + ".example.com"
}

// absent are the same things where there are none.
func absent(name string) (byID, byName vars) {
	byID = vars{
		"artifact": string(holt.NewArtifactID()), "bucket": name + "-bucket",
		"s3key": "HOLTAAAAAAAAAAAAAAAA", "key": string(holt.NewSSHKeyID()), "upload": string(holt.NewUploadID()), "port": "80", "domain": domainOf(holt.NewComputerID()),
		"computer": string(holt.NewComputerID()), "workspace": string(holt.NewWorkspaceID()), "run": string(holt.NewRunID()), "terminal": string(holt.NewTerminalID()),
		"schedule": string(holt.NewScheduleID()), "hold": string(holt.NewHoldID()), "checkpoint": name + "-point", "job": string(holt.NewJobID()), "token": string(holt.NewTokenID()),
		"snapshot": string(holt.NewSnapshotID()), "inputs": string(holt.NewJobInputsID()), "service": "web", "secret": "KEY", "link": string(holt.NewArtifactLinkID()), "image": "base", "tenant": "team-z",
	}
	byName = vars{}
	for k, v := range byID {
		byName[k] = v
	}
	byName["computer"], byName["workspace"], byName["terminal"], byName["schedule"], byName["token"], byName["key"], byName["artifact"] = name, name, name+"-shell", name+"-cron", name+"-token", name+"-key", "artifacts/"+name+"-report"
	return byID, byName
}

// bodies are what is sent to the routes that take JSON. $NAME stands for something that there is.
var bodies = map[string]string{
	"createComputer": `{"name":"made","workspace":"$workspace"}`, "updateComputer": `{"idle_timeout":"1h"}`, "setBudget": `{"run_ms":1000}`,
	"makeDirectory": `{"path":"/tmp/d"}`, "renameFile": `{"from":"/tmp/a","to":"/tmp/b"}`, "linkFile": `{"path":"/tmp/l","target":"b"}`,
	"forkComputer": `{}`, "holdComputer": `{"reason":"thinking"}`, "setComputerNetwork": `{"egress":"off"}`, "resizeComputer": `{"cpus":2}`,
	"startRun": `{"command":"true"}`, "setComputerSecret": `{"host":"a.example","value":"hunter2"}`, "addService": `{"name":"web","command":"true"}`,
	"snapshotComputer": `{}`, "openTerminal": `{}`, "signalTerminal": `{"signal":"SIGINT"}`, "endDaemon": `{"computers":"pause"}`, "bootImage": `{}`,
	"createJob": `{"workspace":"$workspace","run":{"command":"true"}}`, "setLimit": `{"max_running":100}`, "forkSnapshot": `{}`, "restoreSnapshot": `{}`,
	"signalRun": `{"signal":"SIGINT"}`, "createSchedule": `{"computer":"$computer","name":"nightly","cron":"@daily","spec":{"command":"true"}}`,
	"updateSchedule": `{"keep_awake":true}`, "createWorkspace": `{"name":"made"}`, "createCheckpoint": `{}`,
	"makeWorkspaceDirectory": `{"path":"/reports/d"}`, "renameWorkspaceFile": `{"from":"/reports/a","to":"/reports/b"}`, "linkWorkspaceFile": `{"path":"/reports/l","target":"a"}`,
	"forkWorkspace": `{}`, "mergeWorkspace": `{"from":"$workspace"}`, "mountWorkspace": `{"dir":"/nowhere/at/all"}`, "queryWorkspace": `{"sql":"SELECT 1"}`,
	"updateWorkspace": `{"name":"papers"}`, "setQuota": `{"bytes":0}`, "restoreWorkspace": `{"checkpoint":"$checkpoint"}`, "tagFile": `{"path":"/reports/a","set":{"k":"v"}}`, "undoRun": `{"run":"$run"}`,
	"setDomain": `{"port":80}`, "setPreview": `{}`, "linkPreview": `{}`, "addSSHKey": `{"key":"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1nYQ2bqkSkCjKrCd0oq3sJxVTVz3EXAMPLEKEYxxxx"}`,
	"createTicket": `{"path":"/v1/computers/einstein/terminals/main/attach"}`, "createUpload": `{"workspace":"$workspace","path":"/reports/up","size":5}`, "commitUpload": `{}`,
	"publishArtifact": `{"workspace":"$workspace","path":"/reports/a","name":"made"}`, "updateArtifact": `{"tags":{"k":"v"}}`, "createBucket": `{"name":"made"}`, "updateBucket": `{"keep":5}`, "queryArtifacts": `{"sql":"SELECT 1"}`, "linkArtifact": `{}`, "copyArtifact": `{"workspace":"$workspace","path":"/reports/copy"}`,
	"createToken": `{"name":"made","life_ms":60000}`, "queryAudit": `{"sql":"SELECT 1"}`,
}

// queries are the parameters that routes need.
var queries = map[string]string{"path": "/reports/a", "from": "$computer", "to": "$computer", "dir": "/nowhere/at/all", "name": "made"}

// otherBodies are what is sent with a key that was sent with bodies before; a route that is not here gets a body in
// which the first text is another.
var otherBodies = map[string]string{
	"forkComputer": `{"name":"other"}`, "forkWorkspace": `{"name":"other"}`, "forkSnapshot": `{"name":"other"}`, "restoreSnapshot": `{"dry_run":true}`, "snapshotComputer": `{"name":"other"}`,
	"openTerminal": `{"name":"other"}`, "createCheckpoint": `{"name":"other"}`, "commitUpload": `{"sha256":"` + strings.Repeat("0", 64) + `"}`, "linkPreview": `{"expires_in_ms":60000}`,
	"setBudget": `{"run_ms":2000}`, "resizeComputer": `{"cpus":3}`, "setLimit": `{"max_running":99}`, "updateSchedule": `{"keep_awake":false}`, "createToken": `{"name":"made","life_ms":70000}`,
	"tagFile": `{"path":"/reports/a","set":{"k":"w"}}`, "bootImage": `{"cpus":2}`, "createJob": `{"workspace":"$workspace","run":{"command":"false"}}`, "undoRun": `{"run":"$run","dry_run":true}`,
	"restoreWorkspace": `{"checkpoint":"$checkpoint","dry_run":true}`, "mergeWorkspace": `{"from":"$workspace","dry_run":true}`, "createWorkspace": `{"name":"else"}`, "createComputer": `{"name":"else","workspace":"$workspace"}`,
	"updateArtifact": `{"tags":{"k":"w"}}`, "updateBucket": `{"keep":6}`, "linkArtifact": `{"once":true}`, "copyArtifact": `{"workspace":"$workspace","path":"/reports/copy","mode":384}`,
	"updateComputer": `{"idle_timeout":"2h"}`, "createUpload": `{"workspace":"$workspace","path":"/reports/up","size":6}`, "addSSHKey": `{"key":"$otherkey"}`, "createSchedule": `{"computer":"$computer","name":"nightly","cron":"@hourly","spec":{"command":"true"}}`,
}
