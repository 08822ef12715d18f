package agent

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// defaultLocale exists in every guest: it is part of the C library's package.
const defaultLocale = "C.UTF-8"

// localeVariables are read by setlocale(3). Others with that prefix, such as
// LC_TERMINAL, are not locales.
var localeVariables = []string{
	"LC_ALL", "LC_CTYPE", "LC_NUMERIC", "LC_TIME", "LC_COLLATE", "LC_MONETARY", "LC_MESSAGES",
	"LC_PAPER", "LC_NAME", "LC_ADDRESS", "LC_TELEPHONE", "LC_MEASUREMENT", "LC_IDENTIFICATION",
}

// dropLocales removes locales that the machine with its root at root does not
// have, since its programs would warn about each. SSH clients send their own.
func dropLocales(vars map[string]string, root string) {
	for _, name := range localeVariables {
		if v, ok := vars[name]; ok && !hasLocale(root, v) {
			delete(vars, name)
		}
	}
	if v, ok := vars["LANG"]; ok && !hasLocale(root, v) {
		vars["LANG"] = defaultLocale
	}
}

const (
	localeDir     = "/usr/lib/locale"
	archiveMagic  = 0xde020109 // struct locarhead, glibc's locale/locarchive.h
	archiveHead   = 14 * 4
	archiveString = 5 * 4   // place of the offset and size of the names
	archiveMost   = 1 << 20 // maximum size of the names
)

// hasLocale reports whether a locale exists in a guest with glibc.
func hasLocale(root, name string) bool {
	switch name {
	case "", "C", "POSIX":
		return true
	}
	if len(name) > 64 || strings.ContainsAny(name, "/\x00") || name[0] == '.' {
		return false
	}
	for _, n := range []string{name, normalLocale(name)} {
		if st, err := os.Stat(filepath.Join(root+localeDir, n)); err == nil && st.IsDir() {
			return true
		}
	}
	return inArchive(root+localeDir+"/locale-archive", normalLocale(name)) || inArchive(root+localeDir+"/locale-archive", name)
}

// normalLocale normalises the character set as glibc does: en_US.UTF-8 becomes en_US.utf8.
func normalLocale(name string) string {
	language, rest, ok := strings.Cut(name, ".")
	if !ok {
		return name
	}
	set, modifier, modified := strings.Cut(rest, "@")
	set = strings.ToLower(strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
			return r
		}
		return -1
	}, set))
	if strings.Trim(set, "0123456789") == "" {
		set = "iso" + set
	}
	if modified {
		set += "@" + modifier
	}
	return language + "." + set
}

// inArchive reports whether a locale archive, in the machine's byte order, has a name.
func inArchive(path, name string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, archiveHead)
	if _, err := io.ReadFull(f, head); err != nil || binary.NativeEndian.Uint32(head) != archiveMagic {
		return false
	}
	at, used := binary.NativeEndian.Uint32(head[archiveString:]), binary.NativeEndian.Uint32(head[archiveString+4:])
	if used > archiveMost {
		return false
	}
	names := make([]byte, used)
	if _, err := f.ReadAt(names, int64(at)); err != nil {
		return false
	}
	return bytes.HasPrefix(names, []byte(name+"\x00")) || bytes.Contains(names, []byte("\x00"+name+"\x00"))
}
