// Package providers is what runs for one meaning of the configuration file: the
// transformer of every resource, and behind them the plugins.
//
// A file is taken into use in three steps. [Build] makes its transformers beside
// those in use, and calls nobody. [Transformers.Prepare] asks the plugins that
// some resource begins to be written with. [Transformers.Commit] is the swap: from
// then on the plugins have the roles and names of the new file. A file that is
// tried and not taken leaves no trace in what runs.
//
// Nothing here reads files; what is known of the plugins is given out as data, see
// [PluginHealth].
package providers
