// Package servicebus has the commands for those who come from Azure Service Bus. They read the
// entities of a namespace, or of the configuration of Microsoft's emulator, and make them in
// Forebay.
package servicebus

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay/internal/command"
)

// connectionVariable is the environment variable that has the connection string of the source.
const connectionVariable = "SERVICEBUS_CONNECTION_STRING"

// maxConfigBytes bounds the emulator's configuration. Microsoft's own has at most 50 entities.
const maxConfigBytes = 16 << 20

// Commands returns the group of these commands.
func Commands(a *command.App) *cobra.Command {
	return command.Group(&cobra.Command{Use: "servicebus", Short: "Move here from Azure Service Bus"}, importing(a))
}

func importing(a *command.App) *cobra.Command {
	var o struct {
		emulator, namespace, ca string
		dryRun                  bool
	}
	cmd := &cobra.Command{
		Use: "import", Short: "Make the queues, topics, subscriptions and rules of a Service Bus namespace",
		Long: `Make the queues, topics, subscriptions and rules of a Service Bus namespace, or of the
Config.json of Microsoft's emulator. Messages stay where they are. What exists already stays
as it is. The list says what was made, what was there, how it differs, and what Forebay cannot
keep. The connection string of the namespace comes from SERVICEBUS_CONNECTION_STRING and needs
the right Manage. With --namespace it is Microsoft Entra ID that lets you in.`,
		Example: `  forebay servicebus import --emulator Config.json --dry-run
  forebay servicebus import
  forebay servicebus import --namespace acme.servicebus.windows.net`,
	}
	cmd.Flags().StringVar(&o.emulator, "emulator", "", "the emulator's Config.json; -: from the standard input")
	cmd.Flags().StringVar(&o.namespace, "namespace", "", "the host of a namespace, which Entra ID lets you read")
	cmd.Flags().StringVar(&o.ca, "source-ca", "", "PEM file of a further authority to trust at the source")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "only say what would happen, and change nothing")
	return a.APICommand(cmd, func(c *command.Call) error {
		if o.emulator != "" && o.namespace != "" {
			return command.Usagef("--emulator and --namespace name two sources")
		}
		var entities []*entity
		var err error
		if o.emulator != "" {
			entities, err = readEmulator(a, o.emulator)
		} else {
			entities, err = readNamespace(c.Ctx, a, o.namespace, o.ca)
		}
		if err != nil {
			return err
		}
		results, err := (&importer{api: c.API, dryRun: o.dryRun}).run(c.Ctx, entities)
		if err != nil {
			return err
		}
		if err := command.PrintList(a, results, columns); err != nil {
			return err
		}
		return summary(c, results)
	})
}

func columns(r Result) []command.Field {
	return []command.Field{{"ACTION", string(r.Action)}, {"KIND", r.Kind}, {"NAME", r.Name}, {"NOTES", strings.Join(r.Notes, "; ")}}
}

// summary ends with an error if something could not be made.
func summary(c *command.Call, results []Result) error {
	counts := map[Action]int{}
	for _, r := range results {
		counts[r.Action]++
	}
	if n := counts[Failed]; n > 0 {
		return fmt.Errorf("%d of %d entities could not be made: see their notes", n, len(results))
	}
	if c.Output != command.OutputTable {
		return nil
	}
	return c.Say("%d made, %d to make, %d there already", counts[Made], counts[WouldMake], counts[Exists])
}

func readEmulator(a *command.App, file string) ([]*entity, error) {
	in := a.In
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, command.Usagef("%v", err)
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, maxConfigBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxConfigBytes {
		return nil, command.Usagef("the configuration has more than %d bytes", maxConfigBytes)
	}
	var config emulatorConfig
	if err := json.Unmarshal(data, &config); err != nil {
		return nil, command.Usagef("the configuration is not that of the emulator: %v", err)
	}
	return config.entities()
}

func readNamespace(ctx context.Context, a *command.App, host, ca string) ([]*entity, error) {
	options, err := trusting(ca)
	if err != nil {
		return nil, err
	}
	if host != "" {
		credential, err := azidentity.NewDefaultAzureCredential(nil)
		if err != nil {
			return nil, err
		}
		client, err := admin.NewClient(host, credential, options)
		if err != nil {
			return nil, command.Usagef("%v", err)
		}
		return readAzure(ctx, client, host)
	}
	connection := a.Getenv(connectionVariable)
	if connection == "" {
		return nil, command.Usagef("name a source: --emulator, --namespace, or a connection string in %s", connectionVariable)
	}
	client, err := admin.NewClientFromConnectionString(connection, options)
	if err != nil {
		return nil, command.Usagef("the connection string in %s is not one of a namespace", connectionVariable) // the error could repeat the key
	}
	return readAzure(ctx, client, hostOf(connection))
}

// trusting returns options of a client that trusts the authorities in a file besides the system's.
func trusting(file string) (*admin.ClientOptions, error) {
	if file == "" {
		return nil, nil
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	certificates, err := os.ReadFile(file)
	if err != nil {
		return nil, command.Usagef("%v", err)
	}
	if !roots.AppendCertsFromPEM(certificates) {
		return nil, command.Usagef("%s has no certificate in PEM", file)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	return &admin.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: &http.Client{Transport: transport}}}, nil
}

// hostOf is the host in a connection string, or "".
func hostOf(connection string) string {
	for part := range strings.SplitSeq(connection, ";") {
		name, value, _ := strings.Cut(part, "=")
		if strings.EqualFold(strings.TrimSpace(name), "Endpoint") {
			_, host, _ := strings.Cut(value, "://")
			return strings.Trim(cmp.Or(host, value), "/ ")
		}
	}
	return ""
}
