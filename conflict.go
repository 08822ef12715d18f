package holt

// PathConflict is a path that an undo or a merge does not change.
type PathConflict struct {
	Path   OSString     `json:"path"`
	Code   ConflictCode `json:"code" enum:"changed_since,attributes_changed_since,moved_since,removed_since,returned_since,changed_meanwhile,both_changed,both_changed_lines,both_changed_attributes,both_made,both_renamed,both_unlinked,removed_here,removed_there,renamed_here,name_taken,directory_missing,directory_not_empty,inside_itself" doc:"reason, for programs; directory_missing, directory_not_empty, name_taken and inside_itself follow from other conflicts"`
	Reason string       `json:"reason" doc:"reason, for people"`
}

// ConflictCode is the reason of a conflict. Codes never change meaning.
type ConflictCode string

// The codes of an undo: a later change conflicts.
const (
	ChangedSince           ConflictCode = "changed_since"
	AttributesChangedSince ConflictCode = "attributes_changed_since"
	MovedSince             ConflictCode = "moved_since" // or removed, by one of its names
	RemovedSince           ConflictCode = "removed_since"
	ReturnedSince          ConflictCode = "returned_since"
	ChangedMeanwhile       ConflictCode = "changed_meanwhile"
)

// The codes of a merge; here is the workspace that is merged into.
const (
	BothChanged           ConflictCode = "both_changed"
	BothChangedLines      ConflictCode = "both_changed_lines" // where text was to be merged
	BothChangedAttributes ConflictCode = "both_changed_attributes"
	BothMade              ConflictCode = "both_made"
	BothRenamed           ConflictCode = "both_renamed"
	BothUnlinked          ConflictCode = "both_unlinked"
	RemovedHere           ConflictCode = "removed_here"
	RemovedThere          ConflictCode = "removed_there"
	RenamedHere           ConflictCode = "renamed_here" // and removed there
	InsideItself          ConflictCode = "inside_itself"
)

// The codes of both.
const (
	NameTaken         ConflictCode = "name_taken"
	DirectoryMissing  ConflictCode = "directory_missing"
	DirectoryNotEmpty ConflictCode = "directory_not_empty"
)

// Sentence describes the code for people.
func (c ConflictCode) Sentence() string {
	switch c {
	case ChangedSince:
		return "it was changed since"
	case AttributesChangedSince:
		return "its attributes were changed since"
	case MovedSince:
		return "it was moved or removed since"
	case RemovedSince:
		return "it was removed since"
	case ReturnedSince:
		return "it came back since"
	case ChangedMeanwhile:
		return "another changed it at the same time"
	case BothChanged:
		return "its bytes were changed on both sides"
	case BothChangedLines:
		return "the same lines were changed on both sides"
	case BothChangedAttributes:
		return "its attributes were changed on both sides"
	case BothMade:
		return "it was made on both sides, differently"
	case BothRenamed:
		return "it was renamed or removed on both sides"
	case BothUnlinked:
		return "each side removed other names of it"
	case RemovedHere:
		return "it was removed here and changed there"
	case RemovedThere:
		return "it was changed here and removed there"
	case RenamedHere:
		return "it was renamed here and removed there"
	case InsideItself:
		return "it would lie in itself"
	case NameTaken:
		return "something else has its name"
	case DirectoryMissing:
		return "its directory is not there"
	case DirectoryNotEmpty:
		return "it holds what stays"
	}
	return string(c)
}
