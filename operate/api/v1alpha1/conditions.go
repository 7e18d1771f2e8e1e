package v1alpha1

// The types of conditions, by the names that OpenShift has for them. Encrypted is the one to
// look at first; of a type that ends in Degraded or Progressing, True is what needs a look.
const (
	ConditionEncrypted            = "Encrypted"
	ConditionKeyDegraded          = "EncryptionKeyControllerDegraded"
	ConditionStateDegraded        = "EncryptionStateControllerDegraded"
	ConditionMigrationDegraded    = "EncryptionMigrationControllerDegraded"
	ConditionMigrationProgressing = "EncryptionMigrationControllerProgressing"
	ConditionPruneDegraded        = "EncryptionPruneControllerDegraded"
	ConditionPreflightDegraded    = "EncryptionKMSPreflightControllerDegraded"
	ConditionPreflightProgressing = "EncryptionKMSPreflightControllerProgressing"
	ConditionPluginsDegraded      = "KMSPluginsDegraded"
	// ConditionReportsProgressing is that the apiservers have different key_ids, which is so for
	// minutes after each rotation.
	ConditionReportsProgressing = "KmsHealthReportsProgressing"
)

// The reasons of [ConditionEncrypted]. It is True with the first alone.
const (
	ReasonEncryptionCompleted  = "EncryptionCompleted"
	ReasonEncryptionInProgress = "EncryptionInProgress"
	ReasonEncryptionDisabled   = "EncryptionDisabled"
	ReasonDecryptionInProgress = "DecryptionInProgress"
	ReasonDecryptionCompleted  = "DecryptionCompleted"
)

// The reasons of the others that OpenShift has too.
const (
	ReasonAsExpected = "AsExpected"
	ReasonError      = "Error"
	ReasonMigrating  = "Migrating"
)
