# Prints the tokens that Microsoft's SDK for Python makes: NAME KEY AUDIENCE.
import sys

from azure.servicebus._base_handler import ServiceBusSharedKeyCredential
from azure.servicebus._pyamqp.authentication import _generate_sas_access_token
from azure.servicebus._pyamqp.utils import generate_sas_token

name, key, audience = sys.argv[1:]
print(ServiceBusSharedKeyCredential(name, key).get_token(audience).token)
print(generate_sas_token(audience, name, key))
print(_generate_sas_access_token(audience, name, key).token)
