package servertest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"

	"holt"
	"holt/internal/nouns"
)

// sumOf is the SHA-256 of some bytes, as uploads have it.
func sumOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func uploadVerbs(t *testing.T, n nouns.Set) {
	ctx := t.Context()
	newComputer(t, n, "noether")
	Must(n.Workspaces.Create(ctx, holt.WorkspaceSpec{Name: "notes"}, ""))(t)
	data := bytes.Repeat([]byte("0123456789abcdef"), 40_000)
	for _, spec := range []holt.UploadSpec{
		{Computer: "noether", Path: "/home/agent/deep/big", Parents: true, Mode: 0o640},
		{Workspace: "notes", Path: "/deep/big", Parents: true, Mode: 0o640},
	} {
		files, ref := n.Files, spec.Computer
		if spec.Workspace != "" {
			files, ref = n.WorkspaceFiles, spec.Workspace
		}
		spec.Size = int64(len(data))
		u := Must(n.Uploads.Create(ctx, spec, "key "+ref))(t)
		if again := Must(n.Uploads.Create(ctx, spec, "key "+ref))(t); again.ID != u.ID {
			t.Errorf("a repeated create made %s besides %s", again.ID, u.ID)
		}
		if u.State != holt.UploadOpen || u.Offset != 0 || u.Spec.Path != spec.Path || !u.ExpiresAt.After(u.CreatedAt) {
			t.Errorf("created %+v", u)
		}
		u = Must(n.Uploads.Append(ctx, u.ID, 0, "", bytes.NewReader(data[:300_000])))(t)
		if u.Offset != 300_000 {
			t.Errorf("after the first piece: %+v", u)
		}
		// Neither twice, nor with a hole; a piece with another checksum counts for nothing.
		for _, at := range []int64{0, 299_999, 300_001} {
			_, err := n.Uploads.Append(ctx, u.ID, at, "", strings.NewReader("x"))
			WantCode(t, err, holt.Conflict)
		}
		_, err := n.Uploads.Append(ctx, u.ID, 300_000, sumOf([]byte("else")), bytes.NewReader(data[300_000:]))
		WantCode(t, err, holt.InvalidArgument)
		_, err = n.Uploads.Append(ctx, u.ID, 300_000, "", bytes.NewReader(append(bytes.Clone(data[300_000:]), 'x')))
		WantCode(t, err, holt.InvalidArgument)
		_, err = n.Uploads.Commit(ctx, u.ID, holt.UploadCommit{})
		WantCode(t, err, holt.Conflict)
		if u = Must(n.Uploads.Halt(ctx, u.ID))(t); u.Offset != 300_000 {
			t.Errorf("after pieces that were refused: %+v", u)
		}
		u = Must(n.Uploads.Append(ctx, u.ID, 300_000, sumOf(data[300_000:]), bytes.NewReader(data[300_000:])))(t)

		// What was sent is not what was meant: nothing is written, nothing lost.
		_, err = n.Uploads.Commit(ctx, u.ID, holt.UploadCommit{SHA256: sumOf([]byte("else"))})
		WantCode(t, err, holt.Conflict)
		if e := new(holt.Error); !errors.As(err, &e) || e.Detail == nil {
			t.Errorf("a mismatch does not say what is there: %+v", err)
		}
		_, err = files.Stat(ctx, ref, string(spec.Path))
		WantCode(t, err, holt.NotFound)
		for range 2 { // the second changes nothing
			u = Must(n.Uploads.Commit(ctx, u.ID, holt.UploadCommit{SHA256: strings.ToUpper(sumOf(data))}))(t)
			if u.State != holt.UploadDone || u.SHA256 != sumOf(data) || u.File == nil || u.File.Size != int64(len(data)) || u.File.Mode != 0o640 {
				t.Errorf("committed %+v", u)
			}
		}
		var got bytes.Buffer
		fail(t, files.Read(ctx, ref, string(spec.Path), 0, -1, &got))
		if !bytes.Equal(got.Bytes(), data) {
			t.Errorf("%d bytes are there, and not those that were sent", got.Len())
		}
		if got := Must(n.Uploads.Get(ctx, u.ID))(t); got.State != holt.UploadDone || got.File == nil {
			t.Errorf("what became of it: %+v", got)
		}
		_, err = n.Uploads.Commit(ctx, u.ID, holt.UploadCommit{SHA256: sumOf([]byte("else"))})
		WantCode(t, err, holt.Conflict)
	}
	if all := Must(n.Uploads.List(ctx))(t); len(all) != 2 {
		t.Errorf("listed %+v", all)
	}
	auto := Must(n.Uploads.Create(ctx, holt.UploadSpec{Workspace: "notes", Path: "/auto", Size: 2, AutoCommit: true}, ""))(t)
	if auto = Must(n.Uploads.Append(ctx, auto.ID, 0, "", strings.NewReader("hi")))(t); auto.State != holt.UploadDone || auto.File == nil {
		t.Errorf("the last byte did not commit: %+v", auto)
	}
	empty := Must(n.Uploads.Create(ctx, holt.UploadSpec{Workspace: "notes", Path: "/empty"}, ""))(t)
	if empty = Must(n.Uploads.Commit(ctx, empty.ID, holt.UploadCommit{}))(t); empty.File == nil || empty.File.Size != 0 {
		t.Errorf("an empty file: %+v", empty)
	}
	given := Must(n.Uploads.Create(ctx, holt.UploadSpec{Workspace: "notes", Path: "/given", Size: 5}, ""))(t)
	for range 2 {
		fail(t, n.Uploads.Delete(ctx, given.ID, "the same"))
	}
	_, err := n.Uploads.Get(ctx, given.ID)
	WantCode(t, err, holt.NotFound)
	_, err = n.Uploads.Halt(ctx, given.ID)
	WantCode(t, err, holt.NotFound)
	_, err = n.Uploads.Append(ctx, given.ID, 0, "", strings.NewReader("hello"))
	WantCode(t, err, holt.NotFound)

	for _, bad := range []holt.UploadSpec{{Path: "/x"}, {Computer: "noether", Workspace: "notes", Path: "/x"}, {Workspace: "notes", Path: "/x", Size: -1},
		{Workspace: "notes", Path: "/x", SHA256: "beef"}, {Workspace: "notes", Path: "/x", Mode: 0o10000}} {
		_, err := n.Uploads.Create(ctx, bad, "")
		WantCode(t, err, holt.InvalidArgument)
	}
	for _, gone := range []holt.UploadSpec{{Computer: "nobody", Path: "/x"}, {Workspace: "nothing", Path: "/x"}} {
		_, err := n.Uploads.Create(ctx, gone, "")
		WantCode(t, err, holt.NotFound)
	}
	_, err = n.Uploads.Create(ctx, holt.UploadSpec{Workspace: "notes", Path: "/x", Size: 1 << 60}, "")
	WantCode(t, err, holt.OutOfSpace)
	part := Must(n.Uploads.Create(ctx, holt.UploadSpec{Workspace: "notes", Path: "/part", Size: 100}, ""))(t)
	_, err = n.Uploads.Append(ctx, part.ID, 0, "", io.MultiReader(strings.NewReader("begun"), broken{}))
	if err == nil {
		t.Error("a piece that was cut off was taken for whole")
	}
	if part = Must(n.Uploads.Halt(ctx, part.ID))(t); part.Offset != 0 && part.Offset != 5 {
		t.Errorf("of a piece that was cut off: %+v", part)
	}
	uploadRenamed(t, n)
}

// uploadRenamed: an upload goes to the computer that it was begun for, whatever that, or another, is called by then.
func uploadRenamed(t *testing.T, n nouns.Set) {
	ctx := t.Context()
	newComputer(t, n, "hopper")
	u := Must(n.Uploads.Create(ctx, holt.UploadSpec{Computer: "noether", Path: "/home/agent/bound", Size: 5}, ""))(t)
	Must(n.Uploads.Append(ctx, u.ID, 0, "", strings.NewReader("hello")))(t)
	for _, to := range [][2]string{{"noether", "renamed"}, {"hopper", "noether"}} {
		Must(n.Computers.Update(ctx, to[0], holt.ComputerUpdate{Name: to[1]}, ""))(t)
	}
	Must(n.Uploads.Commit(ctx, u.ID, holt.UploadCommit{}))(t)
	if info := Must(n.Files.Stat(ctx, "renamed", "/home/agent/bound"))(t); info.Size != 5 {
		t.Errorf("in the computer that was renamed: %+v", info)
	}
	_, err := n.Files.Stat(ctx, "noether", "/home/agent/bound")
	WantCode(t, err, holt.NotFound)
}

// broken is a body that breaks off.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("the line is cut") }
