# Prints the tokens that Microsoft's SDK for Python makes: NAME KEY AUDIENCE…. Three for each audience.
import sys

from azure.servicebus._base_handler import ServiceBusSharedKeyCredential
from azure.servicebus._pyamqp.authentication import _generate_sas_access_token
from azure.servicebus._pyamqp.utils import generate_sas_token

name, key, *audiences = sys.argv[1:]
for audience in audiences:
    print(audience, ServiceBusSharedKeyCredential(name, key).get_token(audience).token, sep="\t")
    print(audience, generate_sas_token(audience, name, key), sep="\t")
    print(audience, _generate_sas_access_token(audience, name, key).token, sep="\t")
