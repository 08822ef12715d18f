package holt

import "time"

// SSHKeyID names a key by which somebody comes in over SSH: "key_…".
type SSHKeyID string

const sshKeyPrefix = "key_"

// NewSSHKeyID returns a fresh random identifier.
func NewSSHKeyID() SSHKeyID { return SSHKeyID(newID(sshKeyPrefix)) }

// ParseSSHKeyID checks an identifier from outside.
func ParseSSHKeyID(s string) (SSHKeyID, error) {
	id, err := parseID(sshKeyPrefix, "SSH key", s)
	return SSHKeyID(id), err
}

// SSHKeySpec is a key to be put on record.
type SSHKeySpec struct {
	Name                 string `json:"name,omitempty" maxLength:"128" doc:"what it is for; default: the comment of the key"`
	Key                  string `json:"key" maxLength:"16384" doc:"a public key as a line of authorized_keys has it, without options: ssh-ed25519 AAAA… comment"`
	Tenant               string `json:"tenant,omitempty" doc:"whose computers it reaches; default: those of who adds it"`
	AllowAgentForwarding bool   `json:"allow_agent_forwarding,omitempty" doc:"who comes with it may forward an SSH agent into computers"`
}

// SSHKey is a key by which somebody comes in over SSH.
type SSHKey struct {
	ID                   SSHKeyID   `json:"id"`
	Name                 string     `json:"name"`
	Type                 string     `json:"type" doc:"as ssh-ed25519"`
	Fingerprint          string     `json:"fingerprint" doc:"as ssh-keygen -l shows it: SHA256:…"`
	Tenant               string     `json:"tenant,omitempty" doc:"whose computers it reaches; absent: all that the person whose daemon it is does"`
	Token                TokenID    `json:"token,omitempty" doc:"that it was added with: it has its rights, and ends with it"`
	AllowAgentForwarding bool       `json:"allow_agent_forwarding"`
	CreatedAt            time.Time  `json:"created_at"`
	LastUsedAt           *time.Time `json:"last_used_at,omitempty" doc:"to the minute"`
}

// SSHHost is what clients need to know of the SSH gateway.
type SSHHost struct {
	Address     string `json:"address,omitempty" doc:"where it listens; absent: nowhere but in the API"`
	Type        string `json:"type" doc:"of its key"`
	Fingerprint string `json:"fingerprint" doc:"of its key, as ssh-keygen -l shows it"`
	Key         string `json:"key" doc:"its public key: a line of known_hosts is a name, a space, and this"`
}
