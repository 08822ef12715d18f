package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// examples are those of commands that need no more than a line of them, by the command's path.
var examples = map[string]string{
	"archive check":               "holt archive check",
	"archive collect":             "holt archive collect --json | jq .freed",
	"archive get":                 "holt archive get --json | jq .waiting",
	"computer domain delete":      "holt computer domain delete einstein app.example.com",
	"computer domain list":        "holt computer domain list einstein",
	"computer previews":           "holt computer previews einstein",
	"computer ssh-proxy":          "ssh -o ProxyCommand='holt computer ssh-proxy %h' einstein.holt",
	"computer delete":             "holt computer delete einstein\nholt computer delete attempt-1 attempt-2 attempt-3 --yes",
	"computer get":                "holt computer get einstein --json | jq -r .state",
	"computer holds":              "holt computer holds einstein",
	"computer list":               "holt computer list --json | jq -r '.[] | select(.state == \"running\") | .name'",
	"computer logs":               "holt computer logs einstein --follow",
	"computer pause":              "holt computer pause einstein curie",
	"computer resume":             "holt computer resume einstein",
	"computer secret delete":      "holt computer secret delete einstein openai",
	"computer secret list":        "holt computer secret list einstein",
	"computer start":              "holt computer start einstein curie",
	"computer stop":               "holt computer stop einstein curie",
	"computer undo":               "holt computer undo einstein\nholt computer undo einstein run_d5o7dp6rixbsakb4",
	"context delete":              "holt context delete prod",
	"context list":                "holt context list",
	"doctor":                      "holt doctor\nholt doctor --install",
	"down":                        "holt down --pause",
	"image delete":                "holt image delete coding-agent",
	"image list":                  "holt image list",
	"image prune":                 "holt image prune",
	"job cancel":                  "holt job cancel job_d5o7dp6rixbsakb4",
	"job delete":                  "holt job list --json | jq -r '.[].id' | xargs holt job delete",
	"job get":                     "holt job get job_d5o7dp6rixbsakb4 --json | jq .exit_code",
	"job outputs":                 "holt job outputs job_d5o7dp6rixbsakb4 results",
	"snapshot delete":             "holt snapshot delete einstein@before-migration",
	"snapshot list":               "holt snapshot list einstein",
	"snapshot show":               "holt snapshot show einstein@before-migration",
	"run follow":                  "holt run follow run_d5o7dp6rixbsakb4",
	"run kill":                    "holt run kill run_d5o7dp6rixbsakb4",
	"run list":                    "holt run list einstein --running",
	"run show":                    "holt run show run_d5o7dp6rixbsakb4 --json | jq .run.state",
	"schedule delete":             "holt schedule delete einstein@nightly",
	"schedule list":               "holt schedule list --json | jq -r '.[].next[0]'",
	"serve":                       "holt serve --listen localhost:4646 --metrics-listen localhost:4648",
	"service delete":              "holt service delete einstein web",
	"service list":                "holt service list einstein",
	"service restart":             "holt service restart einstein web",
	"service start":               "holt service start einstein web worker",
	"service stop":                "holt service stop einstein web worker",
	"ssh-key delete":              "holt ssh-key delete laptop",
	"ssh-key host":                "holt ssh-key host --json | jq -r .fingerprint",
	"ssh-key list":                "holt ssh-key list",
	"terminal close":              "holt terminal close einstein\nholt terminal close einstein build tests",
	"terminal list":               "holt terminal list einstein",
	"terminal open":               "holt terminal open einstein build --command \"make watch\"",
	"terminal signal":             "holt terminal signal einstein main INT",
	"up":                          "holt up\nholt up --yes --template coding-agent",
	"version":                     "holt version --json | jq -r .daemon",
	"workspace blame":             "holt workspace blame einstein:src/main.go",
	"workspace cat":               "holt workspace cat einstein:src/main.go --at before-upgrade",
	"workspace check":             "holt workspace check einstein",
	"workspace checkpoints":       "holt workspace checkpoints einstein",
	"workspace create":            "holt workspace create shared",
	"workspace delete":            "holt workspace delete shared scratch",
	"workspace delete-checkpoint": "holt workspace delete-checkpoint einstein before-upgrade",
	"workspace du":                "holt workspace du einstein",
	"workspace export":            "holt workspace export einstein ./copy",
	"workspace get":               "holt workspace get einstein --json | jq .bytes\nholt workspace get einstein:report.pdf",
	"workspace history":           "holt workspace history einstein:src/main.go",
	"workspace list":              "holt workspace list --json | jq -r '.[].name'",
	"workspace ls":                "holt workspace ls einstein:src",
	"workspace mkdir":             "holt workspace mkdir einstein:results",
	"workspace mount":             "holt workspace mount shared /mnt/shared",
	"workspace mv":                "holt workspace mv einstein:a.txt einstein:b.txt",
	"workspace put":               "holt workspace put report.pdf einstein:report.pdf",
	"workspace quota":             "holt workspace quota einstein",
	"workspace receipt":           "holt workspace receipt einstein run_d5o7dp6rixbsakb4",
	"workspace rm":                "holt workspace rm einstein:tmp --recursive",
	"workspace tag":               "holt workspace tag einstein:report.pdf reviewed=yes",
	"workspace undo":              "holt workspace undo einstein run_d5o7dp6rixbsakb4",
	"workspace unmount":           "holt workspace unmount /mnt/shared",
}

// exemplify gives commands their examples.
func exemplify(root *cobra.Command) {
	for path, text := range examples {
		cmd, rest, err := root.Find(strings.Fields(path))
		if err != nil || len(rest) > 0 || cmd.Example != "" {
			panic("examples of no command, or of one that has its own: " + path)
		}
		cmd.Example = "  " + strings.ReplaceAll(text, "\n", "\n  ")
	}
}
