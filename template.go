package holt

import "strings"

// The ways to an OCI image, as containers-transports(5) writes them: in a registry, in
// a layout on the daemon's machine, in a file that docker save wrote there.
const (
	OCIRegistry = "docker://"
	OCILayout   = "oci:"
	OCIArchive  = "docker-archive:"
)

// OCIReference tells whether a template is an OCI image, and no name or recipe.
func OCIReference(template string) bool {
	return strings.HasPrefix(template, OCIRegistry) || strings.HasPrefix(template, OCILayout) || strings.HasPrefix(template, OCIArchive)
}
